package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skillsd/skillsd/cmd/skillsd/config"
)

// Each file is a topic of the list, and each topic of an earlier release leads to one.
func TestTopicNames(t *testing.T) {
	files, err := topicFiles.ReadDir("topics")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !slices.Contains(topicNames, strings.TrimSuffix(file.Name(), ".md")) {
			t.Errorf("%s is not listed", file.Name())
		}
	}
	for _, topic := range topics() {
		if topicText(topic.name) == "" || topic.title == "" || len(topic.title) > 63 {
			t.Errorf("topic %s has the title %q", topic.name, topic.title)
		}
		if earlierTopics[topic.name] != "" {
			t.Errorf("%s is also the name of an earlier topic", topic.name)
		}
	}
	for earlier, name := range earlierTopics {
		if topicText(name) == "" {
			t.Errorf("the earlier topic %s leads to %q, which is none", earlier, name)
		}
	}
}

// Every option is documented: by `skillsd serve --help`, or in the topic config.
func TestEveryOptionIsDocumented(t *testing.T) {
	page := topicText("config")
	for _, option := range config.Table() {
		if slices.Contains(frontFlags["serve"], option.Flag) || option.Flag == "state" ||
			option.Flag == "artifact-root" {
			continue
		}
		key, part := option.Key, option.Part
		if part != "" {
			key = strings.TrimSuffix(key, "."+part)
			if !strings.Contains(page, "`"+part+"`") {
				t.Errorf("config.md lacks %s of %s", part, key)
			}
		}
		if key != "" && !strings.Contains(page, "`"+key+"`") {
			t.Errorf("config.md lacks %s", key)
		}
		if option.Flag != "" && !strings.Contains(page, "`--"+option.Flag+"`") &&
			!strings.Contains(page, "`--"+option.Flag+" ") {
			t.Errorf("config.md lacks --%s", option.Flag)
		}
	}
}

// Texts name the help of topics and commands that exist now, by the names in the list.
func TestHintsNameTopics(t *testing.T) {
	mentioned := regexp.MustCompile("skillsd help ([a-z-]+)")
	names := slices.Clone(topicNames)
	for _, g := range groups {
		names = append(names, g.commands...)
	}
	seen := 0
	err := filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range mentioned.FindAllSubmatch(text, -1) {
			seen++
			if !slices.Contains(names, string(m[1])) {
				t.Errorf("%s names skillsd help %s", path, m[1])
			}
		}
		return nil
	})
	if err != nil || seen == 0 {
		t.Errorf("%d mentions, %v", seen, err)
	}
}
