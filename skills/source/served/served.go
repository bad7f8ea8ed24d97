// Package served reads the skills that another MCP server serves by the Skills extension: skills/list names
// them with the digest of every file, and resources/read returns the files.
//
// A server is foreign. Skills reads at most 200 pages and 5,000 skills, each of at most 2,000 files and 64
// MiB; an answer over HTTP has at most 96 MiB. A file without the digest and the size of the list is
// refused. MCP has no executable files: files that begin with "#!" become executable.
package served

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/opencontainers/go-digest"

	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/archive"
)

// Limits of a server's answers.
const (
	maxPages  = 200
	maxSkills = 5_000
	maxFiles  = 2_000
	maxTotal  = 64 << 20 // bytes of a skill
	maxAnswer = 96 << 20 // bytes: a file of a skill, in base64
)

const methodList = "skills/list"

type listParams struct {
	mcp.ParamsBase
	Cursor string `json:"cursor,omitempty"`
}

type listResult struct {
	mcp.ResultBase
	Skills     []listed `json:"skills"`
	NextCursor string   `json:"nextCursor"`
}

type listed struct {
	URI       string `json:"uri"`
	Resources []file `json:"resources"`
}

type file struct {
	URI    string        `json:"uri"`
	Digest digest.Digest `json:"digest"`
	Size   int64         `json:"size"`

	name string // below the skill
}

// Server is a connection to a server.
type Server struct{ session *mcp.ClientSession }

// Skill is a skill of a server.
type Skill struct {
	Name    string        // the path of its URI
	Digest  digest.Digest // of the names and digests of all files
	Problem string        // why it cannot be used; empty if it can
	files   []file
}

// HTTP returns the transport to a server at a URL. client comes from package web.
func HTTP(at string, client *http.Client) mcp.Transport {
	bounded := *client
	bounded.Transport = bound{client.Transport}
	return &mcp.StreamableClientTransport{Endpoint: at, HTTPClient: &bounded, MaxRetries: -1,
		DisableStandaloneSSE: true, MaxEventSize: maxAnswer}
}

// bound truncates answers that are too long.
type bound struct{ http.RoundTripper }

func (b bound) RoundTrip(req *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(answer.Body, maxAnswer), answer.Body}
	return answer, nil
}

// Connect starts a session whose requests pass through the middlewares.
func Connect(ctx context.Context, transport mcp.Transport, around ...mcp.Middleware) (*Server, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "skillsd", Version: "1"}, nil)
	client.AddSendingMiddleware(around...)
	if err := mcp.AddSendingCustomMethod[*listParams, *listResult](client, methodList); err != nil {
		return nil, err
	}
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		return nil, err
	}
	return &Server{session}, nil
}

// Close ends the session.
func (s *Server) Close() error { return s.session.Close() }

// Skills returns the skills of the server in the order of their names. A skill in the directory of another
// one belongs to the files of that skill.
func (s *Server) Skills(ctx context.Context) ([]*Skill, error) {
	var all []*Skill
	cursor := ""
	for range maxPages {
		page, err := mcp.CallCustomMethod[*listParams, *listResult](ctx, s.session, methodList,
			&listParams{Cursor: cursor})
		if err != nil {
			return nil, err
		}
		for n := range page.Skills {
			all = append(all, page.Skills[n].skill(len(all)))
		}
		if len(all) > maxSkills {
			return nil, fmt.Errorf("the server has more than %d skills", maxSkills)
		}
		cursor = page.NextCursor
		if cursor == "" {
			return top(all), nil
		}
	}
	return nil, fmt.Errorf("the server has more than %d pages of skills", maxPages)
}

// top returns the skills that are not inside another one, each name once.
func top(all []*Skill) []*Skill {
	// The slash makes a skill sort directly before the skills inside of it.
	slices.SortStableFunc(all, func(a, b *Skill) int { return strings.Compare(a.Name+"/", b.Name+"/") })
	var found []*Skill
	for _, one := range all {
		last := len(found) - 1
		switch {
		case last >= 0 && found[last].Name == one.Name:
			found[last].Problem = "several skills have this name"
		case last < 0 || !strings.HasPrefix(one.Name, found[last].Name+"/"):
			found = append(found, one)
		}
	}
	return found
}

// skill returns the skill of an entry, with a Problem if the entry breaks a rule. n is its index in the
// list.
func (l *listed) skill(n int) *Skill {
	at, err := skills.ParseURI(l.URI)
	dir, base := path.Split(at)
	s := &Skill{Name: strings.TrimSuffix(dir, "/"), files: l.Resources}
	if err != nil || base != "SKILL.md" || archive.CheckName(s.Name) != nil {
		return &Skill{Name: fmt.Sprintf("entry-%d", n+1),
			Problem: fmt.Sprintf("%.100q is not skill://NAME/SKILL.md", l.URI)}
	}
	if len(s.files) > maxFiles {
		s.Problem = fmt.Sprintf("it has more than %d files", maxFiles)
		return s
	}
	left := int64(maxTotal)
	for i := range s.files {
		f := &s.files[i]
		at, err := skills.ParseURI(f.URI)
		name, inside := strings.CutPrefix(at, dir)
		left -= f.Size
		switch {
		// A file elsewhere on the server may be of another skill, or a path that leads out of the directory.
		case err != nil || !inside || archive.CheckName(name) != nil:
			s.Problem = fmt.Sprintf("the file %.100q is not below the skill", f.URI)
		case f.Digest.Validate() != nil || f.Digest.Algorithm() != digest.SHA256 || f.Size < 0:
			s.Problem = fmt.Sprintf("the file %.100q has no SHA-256 digest or no size", f.URI)
		case left < 0:
			s.Problem = fmt.Sprintf("its files have more than %d bytes", maxTotal)
		}
		f.name = name
		if s.Problem != "" {
			return s
		}
	}
	// The digest must not depend on the order in which the server lists the files.
	slices.SortFunc(s.files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var text strings.Builder
	for _, f := range s.files {
		fmt.Fprintf(&text, "%q %s\n", f.name, f.Digest)
	}
	s.Digest = digest.FromString(text.String())
	return s
}

// Extract writes the files of a skill into an empty directory. If it fails, the caller removes the
// directory.
func (s *Server) Extract(ctx context.Context, one *Skill, into *os.Root) error {
	if one.Problem != "" {
		return fmt.Errorf("the entry of the server: %s", one.Problem)
	}
	for _, f := range one.files {
		data, err := s.read(ctx, f)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if strings.HasPrefix(string(data[:min(2, len(data))]), "#!") {
			mode = 0o700
		}
		err = into.MkdirAll(path.Dir(f.name), 0o700)
		if err != nil {
			return err
		}
		err = writeNew(into, f.name, data, mode)
		if err != nil {
			return err
		}
	}
	return nil
}

func writeNew(into *os.Root, name string, data []byte, mode fs.FileMode) error {
	// O_EXCL refuses a name that is listed twice, here or on a file system that ignores case.
	to, err := into.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = to.Write(data)
	return errors.Join(err, to.Close())
}

// read returns a file, whose bytes have the digest in the list.
func (s *Server) read(ctx context.Context, f file) ([]byte, error) {
	got, err := s.session.ReadResource(ctx, &mcp.ReadResourceParams{URI: f.URI})
	if err != nil {
		return nil, fmt.Errorf("read %.100q: %w", f.URI, err)
	}
	if len(got.Contents) != 1 {
		return nil, fmt.Errorf("the server gave %d contents for %.100q", len(got.Contents), f.URI)
	}
	// An empty file has neither a blob nor a text.
	data := got.Contents[0].Blob
	if data == nil {
		data = []byte(got.Contents[0].Text)
	}
	if sum := digest.FromBytes(data); sum != f.Digest || int64(len(data)) != f.Size {
		return nil, fmt.Errorf("%.100q has other bytes than the list says: %.19s, want %.19s",
			f.URI, sum, f.Digest)
	}
	return data, nil
}
