package mcpserver

import (
	"context"
	"encoding/json"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/store"
)

// benchServer serves testdata/skills with records and trees on disk.
func benchServer(b *testing.B) *Server {
	b.Helper()
	dir := b.TempDir()
	b.Cleanup(func() {
		filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				return os.Chmod(path, 0o700)
			}
			return nil
		})
	})
	trees, err := store.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	records, err := filestore.Open(filepath.Join(dir, "sessions"), nil)
	if err != nil {
		b.Fatal(err)
	}
	registry := skills.NewRegistry([]skills.Root{{Dir: "../testdata/skills"}}, nil)
	pol := policy.New(policy.Config{Tools: ReadMethods()})
	logger := slog.New(slog.DiscardHandler)
	sessions := session.New(session.Config{Registry: registry, Policy: pol, Trees: trees, Records: records, Version: "bench", Logger: logger})
	b.Cleanup(func() {
		if err := sessions.End(context.Background()); err != nil {
			b.Error(err)
		}
		records.Close()
	})
	s := New(Config{Version: "bench", Registry: registry, Sessions: sessions, Policy: pol, Logger: logger})
	if err := s.Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	return s
}

// BenchmarkLoadSkill is one load_skill with its record on disk, without the transport.
func BenchmarkLoadSkill(b *testing.B) {
	s := benchServer(b)
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.RawArguments = ToolLoad, json.RawMessage(`{"name":"csv-report","force":true}`)
	b.ReportAllocs()
	for b.Loop() {
		result, err := s.handleLoad(b.Context(), request)
		if err != nil || result.IsError {
			b.Fatalf("%v %+v", err, result)
		}
	}
}
