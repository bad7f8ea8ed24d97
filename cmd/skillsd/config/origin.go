package config

import (
	"fmt"
	"regexp"
	"slices"
)

// OriginOf is where the value of a flag came from.
func (c *Configuration) OriginOf(flag string) Origin {
	for _, option := range Table() {
		if at, ok := c.Origins[option.Key]; ok && option.Flag == flag {
			return at
		}
	}
	return Origin{Kind: FromDefault, Text: "default"}
}

var flagName = regexp.MustCompile(`--[a-z][a-z-]*[a-z]`)

// Notes say of the flags that a message names where their values came from, when that was not the
// command line.
func (c *Configuration) Notes(message string) []string {
	var notes []string
	for _, name := range flagName.FindAllString(message, -1) {
		at := c.OriginOf(name[2:])
		note := fmt.Sprintf("%s is set by %s (%s)", name, at.Text, at.Key)
		if at.Kind == FromEnv {
			note = fmt.Sprintf("%s is set by the environment variable %s", name, at.Text)
		}
		if (at.Kind == FromFile || at.Kind == FromEnv) && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	return notes
}
