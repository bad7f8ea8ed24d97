package skills

// Fix says in one phrase what the author of a skill, or the operator, does about a diagnostic of
// this code. It is never empty for a code of the list.
func (c Code) Fix() string {
	if fix := c.fixScan(); fix != "" {
		return fix
	}
	if fix := c.fixFile(); fix != "" {
		return fix
	}
	return c.fixSignal()
}

// fixScan is about roots, directories and what the operator chose.
func (c Code) fixScan() string {
	switch c {
	case CodeUnreadableRoot:
		return "make it a readable directory or a sound zip archive, or leave the root out"
	case CodeUnreadableDir:
		return "make the directory readable, or remove the link"
	case CodeOutsideRoot:
		return "copy the target here; a directory can be allowed with --allow-root instead"
	case CodeScanLimit:
		return "split what is too large, or raise --scan-limit; a SKILL.md has 1 MiB at most"
	case CodeMaxDepth:
		return "move the skills up, or raise the limit with --scan-limit depth=N"
	case CodeInvalidPath:
		return "rename it without control characters, backslashes and invalid UTF-8"
	case CodeShadowed:
		return "rename one of the two directories, give one root a prefix, or remove one"
	case CodeDuplicateName:
		return "rename all but one, or use their paths"
	case CodeRequiresMissing:
		return "install the command or set the variable, then start again"
	case CodeNotStrict:
		return "mend what `skillsd validate` lists, or use --validation lenient"
	case CodeUnknownSkill:
		return "use a path or a name that `skillsd list` prints"
	}
	return ""
}

// fixFile is about the files of a skill.
func (c Code) fixFile() string {
	switch c {
	case CodeMisspeltFile:
		return "rename the file to SKILL.md"
	case CodeUnreadableSkill:
		return "make SKILL.md a regular file that can be read"
	case CodeInvalidEncoding:
		return "save SKILL.md as UTF-8 text without NUL bytes"
	case CodeInvalidFrontmatter:
		return "make it plain YAML between two lines ---: keys and values, without anchors and tags, in 64 KiB"
	case CodeFrontmatterRepaired:
		return "mend what the line says: quotes around a value, spaces for tabs, a closing ---, a missing field"
	case CodeMissingName:
		return "add name: with the name of the directory"
	case CodeMissingDescription:
		return "add description: and say what the skill does and when to use it"
	case CodeInvalidName:
		return "use 1 to 64 lower-case letters, digits and single hyphens between them"
	case CodeNameMismatch:
		return "give the directory the skill's name, or the skill the directory's"
	case CodeNotPublishable:
		return "mend the rule named here; until then the skill is served by the tools only"
	case CodeUnreadableResource:
		return "make it a regular file that can be read, or remove it"
	case CodeResourceOutside:
		return "copy the target into the skill in place of the link"
	case CodeResourceSize:
		return "make the file smaller, or keep it out of the skill"
	case CodeResourceCount:
		return "remove files from the skill, or split it"
	}
	return ""
}

// fixSignal is about what was noticed in the names and the text of a skill.
func (c Code) fixSignal() string {
	switch c {
	case CodeNameCollision:
		return "rename all but one: where case or the form of letters does not count they are one file"
	case CodeUnportableName:
		return "rename it without the characters and names that Windows reserves"
	case CodeInvisibleText:
		return "read what the invisible characters hide before trusting the skill, and remove them"
	case CodeHTMLComment:
		return "read the comment, a model sees it; remove what is not meant for one"
	case CodePipeToShell:
		return "download to a file, check it, then run it; or ship it as a script of the skill"
	case CodeDynamicCommand:
		return "write what the command would print, or make it a script: it is never expanded"
	case CodeHooksIgnored:
		return "remove the hooks, they are never run"
	case CodeInjectionPhrase:
		return "read the sentence before trusting the skill, and reword it if it is harmless"
	}
	return ""
}
