package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// toolProblem is the only tool of a server that cannot start.
const toolProblem = "skillsd_problem"

const (
	// faultPatience is how long the process waits for a first message of a client.
	faultPatience = 10 * time.Second
	// faultLook is the interval of checks whether the fault may be fixed.
	faultLook = 500 * time.Millisecond
	// maxFaultLine is the longest client message, in bytes, that is read while the server cannot start.
	maxFaultLine = 8 << 20
	// againID is the id of the initialize request that a started server gets in place of its client's own.
	againID = `"skillsd-restarted"`
)

// Fault is a server that cannot start, as its client on stdio sees it: it serves no skills and runs nothing.
// All fields are required.
type Fault struct {
	In      io.Reader
	Out     io.Writer
	Version string
	Text    string // the fault and, on further lines, its remedy
	// Changed reports whether the fault may have been fixed since the last call.
	Changed func() bool
	// Start runs the server on the streams until it ends. It returns the fault if the server cannot start,
	// and has not read from in then.
	Start func(ctx context.Context, in io.Reader, out io.Writer) (fault string)
}

// faultCall is the part of a message that is read.
type faultCall struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Version string             `json:"protocolVersion"`
		Client  mcp.Implementation `json:"clientInfo"`
		Name    string             `json:"name"`
		Meta    struct {
			Client mcp.Implementation `json:"io.modelcontextprotocol/clientInfo"`
		} `json:"_meta"`
	} `json:"params"`
}

// Serve answers the client until its input or ctx ends. It returns at once if the peer does not speak the
// protocol. For most clients each request gets the fault as its error: Claude Code shows it to its user and
// its model, OpenCode to its user. The models of Codex and Gemini CLI would never see it, so these clients
// get a server without skills that describes the fault in its instructions and its only tool. Once the fault
// is fixed, the real server takes over their connection.
func (f *Fault) Serve(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	chunks := f.read(ctx)
	patience, ticker := time.After(faultPatience), time.NewTicker(faultLook)
	defer ticker.Stop()
	var client faultClient
	var rest []byte
	for {
		line, more, whole := bytes.Cut(rest, []byte("\n"))
		if whole {
			rest = more
			again, ok := f.receive(&client, line)
			if !ok || again && f.start(ctx, client.opening, rest, chunks) {
				return
			}
			continue
		}
		select {
		case chunk, open := <-chunks:
			rest = append(rest, chunk...)
			if !open || len(rest) > maxFaultLine {
				return
			}
		case <-ticker.C:
			if client.opening != nil && f.Changed() && f.start(ctx, client.opening, rest, chunks) {
				return
			}
		case <-patience:
			if !client.speaks {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// faultClient is the state of the client of a Fault.
type faultClient struct {
	speaks  bool   // its first message was one of the protocol
	opening []byte // its initialize request if it gets the server without skills, else nil
}

// hidesErrors are the clients whose models never see the error of an initialize request.
var hidesErrors = []string{"codex-mcp-client", "gemini-cli-mcp-client"}

// receive answers a line of the client. again reports whether to try the start again after the answer; ok is
// false if the peer does not speak the protocol.
func (f *Fault) receive(client *faultClient, line []byte) (again, ok bool) {
	if len(bytes.TrimSpace(line)) == 0 {
		return false, true
	}
	var call faultCall
	err := json.Unmarshal(line, &call)
	begins := call.Method == string(mcp.MethodInitialize)
	if !client.speaks && (err != nil || !begins && call.Method != string(mcp.MethodServerDiscover)) {
		return false, false
	}
	client.speaks = true
	if begins {
		client.opening = nil
		if slices.Contains(hidesErrors, call.Params.Client.Name) {
			client.opening = slices.Clone(line)
		}
	}
	if len(call.ID) == 0 || call.Method == "" {
		// Notifications and responses get no answer (JSON-RPC 2.0).
		return false, true
	}
	return f.answer(&call, client.opening != nil), true
}

// read returns the input in chunks; the channel is closed at the end of the input.
func (f *Fault) read(ctx context.Context) <-chan []byte {
	chunks := make(chan []byte)
	go func() {
		defer close(chunks)
		for {
			chunk := make([]byte, 32<<10)
			n, err := f.In.Read(chunk)
			if n > 0 {
				select {
				case chunks <- chunk[:n]:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return chunks
}

// answer answers a request; kept is set if the client has the server without skills. again reports whether to
// try the start again after the answer.
func (f *Fault) answer(call *faultCall, kept bool) (again bool) {
	var result any
	switch {
	case !kept:
	case call.Method == string(mcp.MethodInitialize):
		version := call.Params.Version
		// The newest revision has no initialize request, so the answer must name an older one.
		if !slices.Contains(ProtocolVersions()[1:], version) {
			version = ProtocolVersions()[1]
		}
		changes := map[string]bool{"listChanged": true}
		result = map[string]any{"protocolVersion": version, "instructions": f.sentence(),
			"serverInfo":   mcp.Implementation{Name: serverName, Version: f.Version},
			"capabilities": map[string]any{"tools": changes, "prompts": changes, "resources": changes}}
	case call.Method == string(mcp.MethodPing):
		result = map[string]any{}
	case call.Method == methodListTools:
		result = map[string]any{"tools": []any{map[string]any{"name": toolProblem,
			"description": "Says why there are no skills. " + f.sentence(),
			"inputSchema": map[string]any{"type": "object", "properties": map[string]any{}},
			"annotations": map[string]bool{"readOnlyHint": true, "destructiveHint": false,
				"openWorldHint": false}}}}
	case call.Method == methodListResources:
		result = map[string]any{"resources": []any{}}
	case call.Method == methodListTemplates:
		result = map[string]any{"resourceTemplates": []any{}}
	case call.Method == methodListPrompts:
		result = map[string]any{"prompts": []any{}}
	case call.Method == "tools/call" && call.Params.Name == toolProblem:
		again = true
		text := f.sentence() + "\nTell the user. When it is fixed, the skills appear without a restart."
		result = map[string]any{"content": []any{mcp.NewTextContent(text)}}
	}
	reply := map[string]any{"jsonrpc": "2.0", "id": call.ID, "result": result}
	if result == nil {
		delete(reply, "result")
		reply["error"] = map[string]any{"code": mcp.INTERNAL_ERROR, "message": f.sentence()}
	}
	f.send(reply)
	return again
}

func (f *Fault) sentence() string { return "skillsd cannot start: " + f.Text }

func (f *Fault) send(message any) {
	if line, err := json.Marshal(message); err == nil {
		f.Out.Write(append(line, '\n'))
	}
}

// start tries to start the server for an initialized client. If it starts, it gets the further input of the
// client, and start returns when it ends; else start returns false.
func (f *Fault) start(ctx context.Context, opening, rest []byte, chunks <-chan []byte) bool {
	in, feed := io.Pipe()
	up, ended := make(chan struct{}), make(chan string, 1)
	go func() {
		ended <- f.Start(ctx, &firstRead{Reader: in, up: up}, &takeover{Writer: f.Out, fault: f})
		in.Close()
	}()
	select {
	case f.Text = <-ended:
		return false
	case <-up:
	}
	// The server has to see the client's initialize request, which the client will not send again.
	var message map[string]json.RawMessage
	if json.Unmarshal(opening, &message) == nil {
		message["id"] = json.RawMessage(againID)
		opening, _ = json.Marshal(message)
	}
	_, err := feed.Write(slices.Concat(opening, []byte("\n"+
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n"), rest))
	for err == nil {
		chunk, open := <-chunks
		if !open {
			break
		}
		_, err = feed.Write(chunk)
	}
	feed.Close()
	<-ended
	return true
}

// firstRead closes up at the first read.
type firstRead struct {
	io.Reader
	up chan struct{}
}

func (r *firstRead) Read(p []byte) (int, error) {
	if r.up != nil {
		close(r.up)
		r.up = nil
	}
	return r.Reader.Read(p)
}

// takeover is the output of a server that took over a connection: it replaces the answer to the initialize
// request, which the client did not send, with notifications of the new lists. Each message is one Write, and
// Writes do not overlap.
type takeover struct {
	io.Writer
	fault     *Fault
	announced bool // the notifications were sent
}

func (w *takeover) Write(line []byte) (int, error) {
	if !w.announced && strings.Contains(string(line[:min(len(line), 80)]), `"id":`+againID) {
		w.announced = true
		for _, method := range listMethods() {
			w.fault.send(map[string]any{"jsonrpc": "2.0", "method": method})
		}
		return len(line), nil
	}
	return w.Writer.Write(line)
}
