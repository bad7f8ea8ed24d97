package catalog_test

import (
	"context"
	"fmt"
	"testing/fstest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
)

func ExampleLoadAndRender() {
	// A root is a directory, or as here a file system within the program.
	tree := fstest.MapFS{
		"pdf/SKILL.md": {Data: []byte("---\nname: pdf\ndescription: Extract tables from PDF files & scans.\n---\n# How\n")},
		"csv/SKILL.md": {Data: []byte("---\nname: csv\ndescription: Summarise a CSV file.\n---\n# How\n")},
	}
	roots := []skills.Root{{Dir: "embedded", FS: tree, Tier: skills.TierBuiltin}}

	text, err := catalog.LoadAndRender(context.Background(), roots, nil, catalog.Options{Pinned: []string{"pdf"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(text)

	text, err = catalog.LoadAndRender(context.Background(), roots, nil, catalog.Options{Format: catalog.FormatXML, NameOnly: []string{"csv"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(text)
	// Output:
	// These skills have instructions for particular tasks. When a task matches the description of one, read the file at its location first; paths in it are relative to the directory of that file.
	// pdf: Extract tables from PDF files & scans. (skill://pdf/SKILL.md)
	// csv: Summarise a CSV file. (skill://csv/SKILL.md)
	// These skills have instructions for particular tasks. When a task matches the description of one, read the file at its location first; paths in it are relative to the directory of that file.
	// <available_skills>
	// <skill>
	// <name>
	// csv
	// </name>
	// <location>
	// skill://csv/SKILL.md
	// </location>
	// </skill>
	// <skill>
	// <name>
	// pdf
	// </name>
	// <description>
	// Extract tables from PDF files &amp; scans.
	// </description>
	// <location>
	// skill://pdf/SKILL.md
	// </location>
	// </skill>
	// </available_skills>
}
