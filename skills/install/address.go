package install

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/skillsd/skillsd/skills/pattern"
)

// address is a source as people write it: a URL copied from a browser, or a short form of one.
type address struct {
	source string   // the URL of a repository, or of anything else on a web server
	ref    string   // a branch, a tag or a commit; empty if the address names none by itself
	rest   []string // a ref and a path, which only the refs of the repository can separate; may be empty
	dir    string   // a directory in the repository, without a ref
	file   bool     // rest names a file, not a directory
	tag    bool     // rest is a tag
	skills []string // names of skills
	short  bool     // the address does not contain source literally
	repo   bool     // source is a repository: its web server need not be asked
	other  string   // source is known to have no files, and what it is instead
}

// forges are the hosts behind the prefixes of short forms.
var forges = map[string]string{"github": "github.com", "gh": "github.com", "gitlab": "gitlab.com",
	"gl": "gitlab.com", "bitbucket": "bitbucket.org", "bb": "bitbucket.org", "codeberg": "codeberg.org"}

var (
	// ownerRepo is a repository of GitHub. A path of this machine with one slash looks the same.
	ownerRepo = pattern.New(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9_.-]{1,100}$`)
	// ownerRepoDir is a directory in one, written likewise.
	ownerRepoDir = pattern.New(`^[A-Za-z0-9][A-Za-z0-9-]{0,38}(/[A-Za-z0-9_.-]+){2,}$`)
	// hostPath is a URL without its scheme.
	hostPath = pattern.New(`^[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}(:[0-9]+)?(/.*)?$`)
)

// readAddress reads an address. It returns false for text that is neither a URL of a web server nor a short
// form: a path of this machine, an ssh URL, a reference to a registry.
//
// A path of this machine wins over a short form; the caller has to look for it first.
func readAddress(text string) (address, bool) {
	a := address{}
	if strings.ContainsFunc(text, isOdd) {
		// A shell would have removed the blanks around a pasted address.
		return a, false
	}
	text = strings.TrimPrefix(text, "git+")
	given := text
	text = withoutEnd(text)
	isCut := text != given
	text, ok := a.expand(text)
	if !ok {
		return a, false
	}
	at, err := url.Parse(text)
	if err != nil || at.Host == "" || at.User != nil {
		// The kinds of sources refuse it, with the reason.
		return a, false
	}
	a.fragment(at)
	if (a.short || a.repo || isForge(at.Hostname())) && !a.named(at) {
		return a, false
	}
	a.page(at)
	a.short = a.short || isCut
	return a, true
}

// expand returns the URL that a text is, or is a short form of: the prefix of a forge, a repository of GitHub
// or a directory in one, or a URL without its scheme. It returns false for other text.
func (a *address) expand(text string) (string, bool) {
	if prefix, rest, ok := strings.Cut(text, ":"); ok && !strings.HasPrefix(rest, "/") {
		if host, known := forges[strings.ToLower(prefix)]; known {
			a.short, a.repo = true, true
			return "https://" + host + "/" + rest, true
		}
	}
	if isWeb(text) {
		return text, true
	}
	a.short = true
	plain, _, _ := strings.Cut(text, "#")
	plain, _, _ = strings.Cut(plain, "@")
	switch {
	case strings.Contains(text, "://") || strings.HasPrefix(text, "."):
		return "", false
	case ownerRepo().MatchString(strings.TrimSuffix(plain, "/")),
		ownerRepoDir().MatchString(strings.TrimSuffix(plain, "/")) && isClean(plain):
		a.repo = true
		return "https://github.com/" + text, true
	case hostPath().MatchString(plain) && archiveEnd(plain) == "":
		return "https://" + text, true
	}
	return "", false
}

// withoutEnd returns an address without the end of the sentence that it was copied from.
func withoutEnd(text string) string {
	cut := strings.TrimRight(text, ".,;)>\"'")
	// A directory such as a/.. and a name with brackets are what they are.
	if cut == "" || strings.HasSuffix(cut, "/") || strings.Contains(cut, "(") {
		return text
	}
	return cut
}

// isClean reports whether a path has no empty segment and none that is . or ..
func isClean(text string) bool { return path.Clean(text) == strings.TrimSuffix(text, "/") }

// fragment takes the ref from a fragment, as in https://host/repository#main. The fragments of pages, such as
// the heading of a README, are dropped.
func (a *address) fragment(at *url.URL) {
	page := at.RawQuery != "" || strings.Contains(at.Fragment, "readme")
	if at.Fragment != "" && !page && checkRef(at.Fragment) == nil {
		a.ref = at.Fragment
	}
	at.Fragment, at.RawFragment = "", ""
}

// named takes the name of a skill, or of a ref, from behind a repository, as in owner/repository@skill. It
// returns false for a name behind anything else.
func (a *address) named(at *url.URL) bool {
	before, name, ok := strings.Cut(at.Path, "@")
	segments := strings.Split(strings.Trim(before, "/"), "/")
	switch {
	case !ok:
		return true
	case len(segments) < 2:
		return !a.repo
	// A directory or a branch may have such a name, and a page names it in full.
	case len(segments) > 2 && (!a.short || isView(segments[2]) || slices.Contains(segments, "-")):
		return true
	}
	at.Path, at.RawPath = before, ""
	if name = strings.Trim(name, "/"); name != "" {
		a.skills = []string{name}
	}
	return true
}

// isForge reports whether a host is one of the forges.
func isForge(host string) bool {
	for _, forge := range forges {
		if strings.EqualFold(host, forge) {
			return true
		}
	}
	return false
}

// page splits the URL of a page of a repository, as a browser shows it, into the repository and the rest.
// Each forge has its own form:
//
//	GitHub     /OWNER/REPO/tree/REF/DIR, /OWNER/REPO/blob/REF/FILE
//	GitLab     /GROUP/.../REPO/-/tree/REF/DIR?ref_type=heads
//	Gitea      /OWNER/REPO/src/branch/REF/DIR
//	Bitbucket  /OWNER/REPO/src/REF/DIR
//	raw files  https://raw.githubusercontent.com/OWNER/REPO/REF/FILE
//
// The URL of anything else is not changed; on the hosts of forges it loses its query.
func (a *address) page(at *url.URL) {
	segments := strings.Split(strings.Trim(at.Path, "/"), "/")
	if strings.HasSuffix(at.Path, ".git") {
		// A repository, whatever the directories above it are called on its server.
		a.source, a.repo = at.String(), true
		return
	}
	host := strings.ToLower(at.Hostname())
	if read := hosts[host]; read != nil && read(a, at, segments) {
		return
	}
	if n := dash(segments); n > 0 {
		a.split(at, segments[:n], segments[n+1:], ".git")
		return
	}
	if len(segments) > 3 && isView(segments[2]) {
		a.split(at, segments[:2], segments[2:], "")
		return
	}
	// A page of GitHub has more segments too, but is copied with its scheme.
	// Groups of GitLab nest, so more segments there name a repository.
	if a.short && a.repo && len(segments) > 2 && host != "gitlab.com" {
		segments = a.below(at, segments)
	}
	if isForge(host) && len(segments) > 1 {
		at.RawQuery = ""
		a.repo = len(segments) == 2 || host == "gitlab.com"
	}
	at.Path = strings.TrimRight(at.Path, "/")
	a.source = at.String()
}

// dash returns the index of the segment - that GitLab has between a repository and a view of it, or 0.
func dash(segments []string) int {
	for n, segment := range segments {
		if segment == "-" && n > 1 && n+1 < len(segments) {
			return n
		}
	}
	return 0
}

// below takes the directory from a short form that names one in a repository, and returns the segments of the
// repository.
func (a *address) below(at *url.URL, segments []string) []string {
	repository, dir := segments[:2], segments[2:]
	if last := len(dir) - 1; isSkillFile(dir[last]) {
		dir = dir[:last]
	}
	a.dir = strings.Join(dir, "/")
	at.Path = "/" + strings.Join(repository, "/")
	return repository
}

// hosts are the readers of the URLs that only one host has. A reader returns false for a URL that has the
// form of a forge.
var hosts = map[string]func(a *address, at *url.URL, segments []string) bool{
	"github.com":                (*address).pageOfGitHub,
	"raw.githubusercontent.com": (*address).rawOfGitHub,
	"skills.sh":                 (*address).listedSkill,
}

// rawOfGitHub reads the URL of a raw file of GitHub: /OWNER/REPO/REF/FILE.
func (a *address) rawOfGitHub(at *url.URL, segments []string) bool {
	if len(segments) < 4 {
		return false
	}
	at.Host = "github.com"
	a.split(at, segments[:2], append([]string{"raw"}, segments[2:]...), "")
	return true
}

// listedSkill reads the URL of a repository or of a skill in the directory skills.sh: /OWNER/REPO/SKILL.
func (a *address) listedSkill(_ *url.URL, segments []string) bool {
	if len(segments) != 2 && len(segments) != 3 {
		return false
	}
	a.source, a.repo, a.short = "https://github.com/"+strings.Join(segments[:2], "/"), true, true
	a.skills = append(a.skills, segments[2:]...)
	return true
}

// pageOfGitHub reads the URL of a page of GitHub that shows no directory. It returns false for other URLs.
func (a *address) pageOfGitHub(at *url.URL, segments []string) bool {
	if len(segments) == 1 && segments[0] != "" {
		a.source, a.other = at.String(), "the page of an account"
		return true
	}
	if len(segments) < 3 || a.short {
		return false
	}
	repository, view := segments[:2], segments[2:]
	switch {
	case len(view) == 1 && (isView(view[0]) || slices.Contains(lists, view[0])):
		at.Path, at.RawQuery = "/"+strings.Join(repository, "/"), ""
		a.source, a.repo, a.short, a.ref = at.String(), true, true, ""
	case len(view) == 2 && view[0] == "commit":
		a.split(at, repository, []string{"tree", view[1]}, "")
	case len(view) > 2 && view[0] == "releases" && view[1] == "tag":
		// A tag may contain slashes, as in pdf/v1.
		a.tag = true
		a.split(at, repository, append([]string{"tree"}, view[2:]...), "")
	case slices.Contains(talks, view[0]):
		a.source, a.other = at.String(), "a page about a repository"
	default:
		return false
	}
	return true
}

var (
	// lists are pages of GitHub about all of a repository.
	lists = []string{"releases", "tags", "branches", "commits"}
	// talks are pages of GitHub where people write, not about one commit.
	talks = []string{"issues", "pull", "pulls", "discussions", "actions", "projects", "security",
		"settings", "wiki"}
)

// isView reports whether a segment of a URL shows files of a repository.
func isView(segment string) bool {
	return segment == "tree" || segment == "blob" || segment == "raw" || segment == "src"
}

// split sets the repository and the rest of the URL of a page. end is appended to the repository: GitLab
// redirects what lacks it.
func (a *address) split(at *url.URL, repository, view []string, end string) {
	if !isView(view[0]) || len(view) < 2 {
		a.source = at.String()
		return
	}
	rest := view[1:]
	last := rest[len(rest)-1]
	// Bitbucket and Gitea show files and directories alike.
	a.file = view[0] == "blob" || view[0] == "raw" || isSkillFile(last) ||
		view[0] == "src" && strings.HasSuffix(last, ".md")
	// The fragment of such a page is a place in it.
	a.ref = ""
	if len(rest) > 1 && (rest[0] == "branch" || rest[0] == "tag" || rest[0] == "commit") {
		// Gitea names the type of the ref in front of it.
		rest = rest[1:]
	}
	if len(rest) > 2 && rest[0] == "refs" {
		// The URL of a raw file has refs/heads/REF.
		rest = rest[2:]
	}
	name := strings.TrimSuffix(repository[len(repository)-1], ".git")
	repository = append(repository[:len(repository)-1:len(repository)-1], name+end)
	to := url.URL{Scheme: at.Scheme, Host: at.Host, Path: "/" + strings.Join(repository, "/")}
	a.source, a.rest, a.repo, a.short = to.String(), rest, true, true
}

// refAndPath separates the ref from the path of a directory or a file in the rest of an address. The ref is
// the longest name in refs at the beginning of the rest, or the first segment, such as a commit.
func (a *address) refAndPath(refs []string) (ref, inside string) {
	if a.tag {
		return strings.Join(a.rest, "/"), ""
	}
	length := 1
	for _, name := range refs {
		segments := strings.Split(name, "/")
		if len(segments) > length && len(segments) <= len(a.rest) &&
			strings.Join(a.rest[:len(segments)], "/") == name {
			length = len(segments)
		}
	}
	return strings.Join(a.rest[:length], "/"), strings.Join(a.rest[length:], "/")
}
