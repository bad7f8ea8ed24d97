package mcpserver

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
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
	s := New(Config{Version: "bench", Registry: registry, Sessions: sessions, Logger: logger})
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
		result, err := s.tool(s.load)(b.Context(), request)
		if err != nil || result.IsError {
			b.Fatalf("%v %+v", err, result)
		}
	}
}

// BenchmarkLoadSkillStdio is the same through the transport.
func BenchmarkLoadSkillStdio(b *testing.B) {
	s := benchServer(b)
	clientIn, serverOut := io.Pipe()
	serverIn, clientOut := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.ServeStdio(b.Context(), serverIn, serverOut) }()
	answers := bufio.NewReaderSize(clientIn, 1<<20)
	exchange := func(line string) {
		if _, err := io.WriteString(clientOut, line+"\n"); err != nil {
			b.Fatal(err)
		}
		answer, err := answers.ReadString('\n')
		if err != nil || strings.Contains(answer, `"isError":true`) {
			b.Fatalf("%v %s", err, answer)
		}
	}
	exchange(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"b","version":"1"}}}`)
	b.ReportAllocs()
	for b.Loop() {
		exchange(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"load_skill","arguments":{"name":"csv-report","force":true}}}`)
	}
	clientOut.Close()
	if err := <-served; err != nil {
		b.Error(err)
	}
}
