package signal

import (
	"bytes"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// A git hook that calls the tools of its project is ordinary, wherever it is. A script that writes one
// contains its lines, so these decide.

// Expressions that match the beginning of a git hook in a shell, commands that put something else into a
// directory of hooks, and one that makes a directory of the project the one for its hooks.
var (
	hookText = pattern.New(`^\s*cat\s*(?:>\s*` + hookName + `\s*<<-?\s*["']?(\w+)["']?` +
		`|<<-?\s*["']?(\w+)["']?\s*>\s*` + hookName + `)\s*$`)
	hookFill = pattern.New(`(?:^|[\s;&|])(?:cp|mv|install|ln|rsync|tar|unzip|curl|wget|git\s+clone|tee)\s` +
		`[^;&|]*hook|>\s*[^\s;&|]*hook`)
	hookDir = pattern.New(`^\s*git\s+(?:-C\s+\S+\s+)?config\s+(?:--local\s+)?core\.[hH]ooks[pP]ath\s+` +
		`["']?([\w.-][\w./-]*hook[\w./-]*|\.?hook[\w./-]*)["']?\s*` +
		"(?:(?:&&|\\|\\||;)\\s*(?:echo|printf|true)\\b[^;&|>$`]*)?$")
)

const hookName = `(?:"[^"]*|\S*)hooks/(?:pre|post|commit|prepare)-[\w-]+["']?`

// writtenText is a git hook, or a text for the settings of a shell, that a program writes.
type writtenText struct {
	end        []byte // the line that ends it, or nothing
	line       int    // the line where the program begins to write it
	isSettings bool
	isIndented bool // tabs may precede the line that ends it
}

// hooksDir is a directory of the project that is made the one of its git hooks.
type hooksDir struct {
	line     int  // where that is, or 0
	isFilled bool // the program puts something else than tools into a directory of hooks
}

// isOrdinaryHook reports whether a line begins a git hook whose lines follow, or sets the directory of hooks
// to one of the project. What they contain decides later.
func (s *Scanner) isOrdinaryHook(line []byte) bool {
	if !s.spend(line) {
		return false
	}
	if m := hookText().FindSubmatch(line); m != nil {
		s.beginWritten(line, false, m[1], m[2])
		return true
	}
	if m := hookDir().FindSubmatch(line); m != nil && !containsAny(m[1], "..") {
		s.hooks.line = s.line
		return true
	}
	s.hooks.isFilled = s.hooks.isFilled || hookFill().Match(line) && !s.isPrinted(line)
	return false
}

// beginWritten records the end of a hook, or of settings of a shell, whose lines follow.
func (s *Scanner) beginWritten(line []byte, isSettings bool, end ...[]byte) {
	s.written = writtenText{
		end:        append(s.written.end[:0], bytes.Join(end, nil)...),
		line:       s.line,
		isSettings: isSettings,
		isIndented: containsAny(line, "<<-"),
	}
}

// searchLiteral searches the line where a literal of several lines begins or ends. A program may write the
// literal as a hook.
func (s *Scanner) searchLiteral(line []byte) {
	at := max(bytes.LastIndex(line, []byte(`"""`)), bytes.LastIndex(line, []byte("'''")))
	head, text := line[:at], line[at+len(`"""`):]
	if s.docs {
		if len(s.written.end) > 0 {
			s.searchWritten(head)
			s.written.end = s.written.end[:0]
		}
		return
	}
	head = s.joined(head)
	here := s.taintOf(head)
	if !hasTaint(here, startup|tasks) || !s.spend(head) {
		return
	}
	s.task.isWritten = s.task.isWritten || s.writesTo(head, tasks)
	if !s.writesTo(head, startup) {
		return
	}
	isHook := containsAny(bytes.ToLower(head), "hook")
	s.beginWritten(head, !isHook, []byte("END"))
	if text = bytes.TrimRight(text, "\\\r"); len(text) > 0 {
		s.searchWritten(text)
	}
}

// searchWritten searches a line of a git hook, or of settings, that a program writes.
func (s *Scanner) searchWritten(line []byte) {
	text, end := bytes.TrimSpace(line), bytes.TrimRight(line, "\r")
	if s.written.isIndented {
		end = bytes.TrimLeft(end, "\t")
	}
	switch {
	case bytes.Equal(end, s.written.end):
	case !s.spend(line),
		s.written.isSettings && !s.setsOnly(text),
		!s.written.isSettings && !callsTools(text):
		s.found.addPlain(Unasked, s.written.line)
	default:
		return
	}
	s.written.end = s.written.end[:0]
}

// Expressions for the parts of a line of a hook.
var (
	quoted  = pattern.New(`\\.|\$'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|'[^']*'`)
	toNull  = pattern.New(`(?:[12&]?>|>&)\s*(?:/dev/null|&[12]|[12]\b)`)
	parts   = pattern.New("[;&|()`]|\\$\\(")
	leading = pattern.New(`^(?:(?:if|elif|then|else|do|while|until|[!{}]|exec|time|xargs(?:\s+-\S+)*` +
		`|\w+=\S*)(?:\s+|$))+`)
	onPlace  = pattern.New(`(?:^|[\s=:"'])(?:/|~)|://|\$\{?HOME\b|\.\./|>`)
	inPlace  = pattern.New(`^(?:\./)?[\w.-]+(?:/[\w.-]+)+$|^\./[\w.-]+$`)
	runsCode = pattern.New(`\s-(?:c|e|r|p|-eval|-command)\s*Q`)
)

// tools are the commands of hooks: checkers, builders and runners of a project, and what a shell needs to
// call them. None of them sends a text, or runs one from an address.
var tools = strings.Fields(`npm pnpm yarn bun npx bunx make just task go gofmt goimports golangci-lint
	staticcheck cargo rustfmt pytest ruff black mypy flake8 isort pylint pyright tox nox uv poetry
	pipenv hatch pre-commit eslint prettier tsc jest vitest mocha lint-staged commitlint husky lefthook
	biome stylelint markdownlint shellcheck shfmt yamllint hadolint gitleaks gradle mvn dotnet bundle
	rake rspec rubocop composer phpunit phpstan swiftlint swiftformat ktlint mix terraform tflint
	sqlfluff buf clang-format cmake ctest turbo nx echo printf exit return cd true false test [ [[ ] ]]
	grep sort uniq head tail wc cut tr cat basename dirname set fi done for case esac : read
	local export unset shift break continue`)

// reads are the commands of git that neither send nor set anything.
var reads = []string{"diff", "rev-parse", "status", "ls-files", "add", "stash", "show", "log", "symbolic-ref",
	"branch", "grep", "diff-index", "describe", "cat-file", "lfs"}

// callsTools reports whether a line of a hook calls nothing but tools of its project.
func callsTools(text []byte) bool {
	if len(text) == 0 || text[0] == '#' {
		return true
	}
	text = toNull().ReplaceAll(withoutQuoted(text), nil)
	// A quotation may go on in the next line, and what looks like the end of one is then the beginning.
	if onPlace().Match(text) || bytes.ContainsAny(text, `"'`) {
		return false
	}
	for _, part := range parts().Split(string(text), -1) {
		part = leading().ReplaceAllString(strings.TrimSpace(part), "")
		words := strings.Fields(part)
		if len(words) > 0 && !isTool(words, part) {
			return false
		}
	}
	return true
}

// withoutQuoted returns a line of a shell with one word in the place of each text in quotes, unless the shell
// runs a part of the text, or it is a place.
func withoutQuoted(line []byte) []byte {
	return quoted().ReplaceAllFunc(line, func(q []byte) []byte {
		if q[0] == '\\' || q[0] == '$' {
			return []byte("Q")
		}
		text := q[1 : len(q)-1]
		if q[0] == '"' && (containsAny(text, "$(") || bytes.ContainsAny(text, "`")) {
			return withoutQuoted(text)
		}
		if onPlace().Match(q) && !bytes.ContainsAny(text, " ") {
			return text
		}
		return []byte("Q")
	})
}

// isTool reports whether a command is one of a project.
func isTool(words []string, command string) bool {
	second := ""
	if len(words) > 1 {
		second = words[1]
	}
	isPlace := func(word string) bool { return inPlace().MatchString(word) }
	switch name := words[0]; name {
	case "command":
		return second == "-v"
	case "git":
		return slices.Contains(reads, second)
	case "python", "python3":
		return second == "-m" || isPlace(second)
	case "sh", "bash", "node", "deno", "ruby", "php":
		return isPlace(second)
	case "echo", "printf", "grep", "set", "test", "[", "[[":
		return true
	default:
		return (slices.Contains(tools, name) || isPlace(name)) && !runsCode().MatchString(command)
	}
}
