package report

import (
	"cmp"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills"
)

// Finding is a problem at a place in a file, for a program that shows it in the source.
type Finding struct {
	Path string // as the user wrote it, with slashes
	Problem
}

// The part of SARIF 2.1.0 that findings need.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		ColumnKind string        `json:"columnKind"`
		Results    []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		URL     string      `json:"informationUri"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID string `json:"id"`
	}
	sarifResult struct {
		Rule      string          `json:"ruleId"`
		Index     int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		Physical sarifPhysical `json:"physicalLocation"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   *sarifRegion  `json:"region,omitempty"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		Line int `json:"startLine"`
	}
)

// WriteSARIF writes findings in the Static Analysis Results Interchange Format, version 2.1.0. GitHub and
// editors show them in the source.
func WriteSARIF(w io.Writer, version string, findings []Finding) error {
	driver := sarifDriver{Name: "skillsd", Version: version, URL: "https://github.com/skillsd/skillsd",
		Rules: []sarifRule{}}
	for _, f := range findings {
		if !slices.Contains(driver.Rules, sarifRule{f.Rule}) {
			driver.Rules = append(driver.Rules, sarifRule{f.Rule})
		}
	}
	slices.SortFunc(driver.Rules, func(a, b sarifRule) int { return cmp.Compare(a.ID, b.ID) })
	// In SARIF a null list means that nothing was scanned, and an empty one that nothing was found (section
	// 3.14.23).
	results := make([]sarifResult, len(findings))
	for i, f := range findings {
		text := Printable(f.Message)
		if f.Fix != "" {
			text += " (fix: " + Printable(f.Fix) + ")"
		}
		level := "error"
		if f.Severity == skills.Warning.String() {
			level = "warning"
		}
		location := sarifPhysical{Artifact: sarifArtifact{sarifURI(f.Path)}}
		if f.Line > 0 {
			location.Region = &sarifRegion{f.Line}
		}
		results[i] = sarifResult{Rule: f.Rule, Index: slices.Index(driver.Rules, sarifRule{f.Rule}),
			Level: level, Message: sarifText{text}, Locations: []sarifLocation{{location}}}
	}
	return WriteJSON(w, sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0",
		Runs: []sarifRun{{Tool: sarifTool{driver}, ColumnKind: "unicodeCodePoints", Results: results}}})
}

// sarifURI returns a path as a URI: relative to the directory that the command ran in, unless it is absolute.
func sarifURI(path string) string {
	// GitHub matches the URI with paths of the repository as text.
	path = strings.TrimPrefix(filepath.ToSlash(path), "./")
	if !filepath.IsAbs(filepath.FromSlash(path)) {
		return (&url.URL{Path: path}).String()
	}
	if !strings.HasPrefix(path, "/") {
		// A drive of Windows begins the path.
		path = "/" + path
	}
	return (&url.URL{Scheme: "file", Path: path}).String()
}
