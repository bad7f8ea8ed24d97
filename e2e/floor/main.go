// Command floor is a minimal skills server built on mcp-go: it reads the frontmatter of a tree when it starts
// and files on request, without guards and records. Benchmarks report the cost of skillsd as a multiple of
// its cost.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// pageSize is the number of skills on a page of skills/list, as in skillsd; budget limits the catalogue shown
// to a client, in bytes.
const pageSize, budget = 100, 16_000

// skill is an entry of skills/list.
type skill struct {
	URI         string            `json:"uri"`
	Frontmatter map[string]string `json:"frontmatter"`
	Resources   []resource        `json:"resources"`

	dir string
}

type resource struct {
	URI    string `json:"uri"`
	Digest string `json:"digest"`
}

type floor struct {
	skills []*skill
	byName map[string]*skill
	pages  [][]byte // answers to skills/list, encoded once
}

func main() {
	tree := flag.String("tree", "", "the `DIRECTORY` with a directory for each skill")
	listen := flag.Bool("http", false, "serve HTTP on a free port of loopback; stderr says which")
	extension := flag.Bool("extension", false,
		"answer skills/list and skills/get, for which all files are read at the start")
	flag.Parse()
	f, err := scan(*tree, *extension)
	if err == nil {
		err = f.serve(*listen, *extension)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func scan(tree string, digests bool) (*floor, error) {
	entries, err := os.ReadDir(tree)
	if err != nil {
		return nil, err
	}
	found := make([]*skill, len(entries))
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				found[i] = read(filepath.Join(tree, entries[i].Name()), digests)
			}
		})
	}
	for i := range entries {
		next <- i
	}
	close(next)
	wg.Wait()
	f := &floor{byName: map[string]*skill{}}
	for _, s := range found {
		if s != nil {
			f.skills, f.byName[s.Frontmatter["name"]] = append(f.skills, s), s
		}
	}
	for from := 0; from < len(f.skills) && digests; from += pageSize {
		page := map[string]any{"skills": f.skills[from:min(from+pageSize, len(f.skills))]}
		if from+pageSize < len(f.skills) {
			page["nextCursor"] = strconv.Itoa(len(f.pages) + 1)
		}
		text, err := json.Marshal(page)
		if err != nil {
			return nil, err
		}
		f.pages = append(f.pages, text)
	}
	return f, nil
}

// read returns the skill in a directory, or nil.
func read(dir string, digests bool) *skill {
	text, err := os.ReadFile(filepath.Join(dir, "SKILL.md"))
	if err != nil {
		return nil
	}
	s := &skill{dir: dir, Frontmatter: map[string]string{}}
	head, _, _ := strings.Cut(strings.TrimPrefix(string(text), "---\n"), "\n---\n")
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(line, ":")
		s.Frontmatter[key] = strings.TrimSpace(value)
	}
	uri := "skill://" + s.Frontmatter["name"] + "/"
	s.URI = uri + "SKILL.md"
	if !digests {
		return s
	}
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		s.Resources = append(s.Resources, resource{uri + rel, fmt.Sprintf("sha256:%x", sha256.Sum256(text))})
		return err
	})
	return s
}

func (f *floor) serve(listen, extension bool) error {
	s := server.NewMCPServer("floor", "0", server.WithToolCapabilities(false))
	var catalogue strings.Builder
	for _, s := range f.skills {
		if catalogue.Len() < budget {
			fmt.Fprintf(&catalogue, "%s: %s\n", s.Frontmatter["name"], s.Frontmatter["description"])
		}
	}
	tool := mcp.NewTool("load_skill", mcp.WithDescription(catalogue.String()),
		mcp.WithString("name", mcp.Required()))
	s.AddTool(tool, func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		found := f.byName[r.GetString("name", "")]
		if found == nil {
			return mcp.NewToolResultError("no such skill"), nil
		}
		text, err := os.ReadFile(filepath.Join(found.dir, "SKILL.md"))
		if err != nil {
			return nil, err
		}
		return mcp.NewToolResultText(string(text)), nil
	})
	if listen {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "listening on", listener.Addr())
		mux := http.NewServeMux()
		mux.Handle("/mcp", server.NewStreamableHTTPServer(s))
		return http.Serve(listener, mux)
	}
	in := io.Reader(os.Stdin)
	if extension {
		in = f.answering(in)
	}
	return server.NewStdioServer(s).Listen(context.Background(), in, os.Stdout)
}

// answering answers the methods that mcp-go lacks, and returns all other lines.
func (f *floor) answering(in io.Reader) io.Reader {
	rest, w := io.Pipe()
	go func() {
		defer w.Close()
		lines := bufio.NewReaderSize(in, 1<<20)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			if !bytes.Contains(line, []byte(`"skills/`)) {
				_, _ = w.Write(line)
				continue
			}
			var m struct {
				ID     json.RawMessage
				Method string
				Params struct{ Cursor, URI string }
			}
			if err := json.Unmarshal(line, &m); err != nil {
				return
			}
			result := f.pages[0]
			if m.Method == "skills/get" {
				name, _, _ := strings.Cut(strings.TrimPrefix(m.Params.URI, "skill://"), "/")
				result, _ = json.Marshal(map[string]any{"skill": f.byName[name]})
			}
			fmt.Fprintf(os.Stdout, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
		}
	}()
	return rest
}
