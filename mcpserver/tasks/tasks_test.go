package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/wire"
)

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},` +
	`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}}`

// bench is a server on stdio whose one tool works until it is let go.
type bench struct {
	store *Store
	in    io.Writer
	out   *json.Decoder
	id    int
}

func newBench(t *testing.T, handle Handler) *bench {
	owner := func(context.Context, map[string]any) (string, string) { return "me", "" }
	b := &bench{store: New(Options{Patience: time.Second, Owner: owner})}
	methods := b.store.Methods()
	methods["tools/call"] = func(ctx context.Context, r *wire.Request) (any, error) {
		var request mcp.CallToolRequest
		if err := wire.Decode(r.Params, &request.Params); err != nil {
			return nil, err
		}
		return b.store.Call(ctx, request, handle)
	}
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	b.in, b.out = inW, json.NewDecoder(outR)
	go func() {
		wire.ServeStdio(t.Context(), &wire.Dispatcher{Methods: methods}, &wire.StdioOptions{In: inR, Out: outW})
		b.store.Close()
		outW.Close()
	}()
	t.Cleanup(func() {
		inW.Close()
		io.Copy(io.Discard, outR)
	})
	return b
}

type reply struct {
	Result struct {
		ResultType, TaskID, Status, StatusMessage string
		InputRequests                             map[string]any
		Result                                    struct{ Content []struct{ Text string } }
		Content                                   []struct{ Text string }
		Error                                     struct{ Code int }
	}
	Error *struct {
		Code    int
		Message string
	}
}

func (b *bench) send(t *testing.T, method, params string) (r reply) {
	t.Helper()
	b.id++
	fmt.Fprintf(b.in, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s,%s}}`+"\n", b.id, method, params, meta)
	if err := b.out.Decode(&r); err != nil {
		t.Fatal(err)
	}
	return r
}

func (b *bench) call(t *testing.T) reply {
	return b.send(t, "tools/call", `"name":"work","arguments":{}`)
}

func (b *bench) get(t *testing.T, id string) reply {
	return b.send(t, "tasks/get", fmt.Sprintf(`"taskId":%q`, id))
}

// A result is there until the life of its task ends, and work that lasts longer is cancelled.
func TestLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := false
		b := newBench(t, func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			work := time.Minute
			if long {
				work = 2 * ttl
			}
			select {
			case <-time.After(work):
				return mcp.NewToolResultText("done"), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		id := b.call(t).Result.TaskID
		if got := b.get(t, id); got.Result.Status != working {
			t.Errorf("at once: %+v", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := b.get(t, id); got.Result.Status != completed || got.Result.Result.Content[0].Text != "done" {
			t.Errorf("after its work: %+v", got)
		}
		time.Sleep(ttl - 2*time.Minute)
		if got := b.get(t, id); got.Result.Status != completed {
			t.Errorf("before its life ends: %+v", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := b.get(t, id); got.Error == nil || got.Error.Code != mcp.INVALID_PARAMS {
			t.Errorf("after its life: %+v", got)
		}
		long = true
		id = b.call(t).Result.TaskID
		time.Sleep(ttl)
		synctest.Wait()
		if got := b.get(t, id); got.Error == nil || len(b.store.tasks) != 0 {
			t.Errorf("work that lasts longer than a task: %+v", got)
		}
	})
}

// places are the places of a cluster that does not say what it knows.
type places struct{ life time.Duration }

func (p *places) Put(_ context.Context, _ string, life time.Duration) error {
	p.life = life
	return nil
}

func (*places) Find(context.Context, string) (time.Time, string, error) {
	return time.Time{}, "", errors.New("private")
}

// Other servers know of a task for as long as its own does, which would else say that it was lost. While they
// cannot say who has one, the client is to ask again.
func TestHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, of := newBench(t, func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(10 * time.Second) // until another server has said that it does not have the session
			FromContext(ctx).Here()
			time.Sleep(time.Minute)
			return mcp.NewToolResultText("done"), nil
		}), new(places)
		b.store.opts.Holders = of
		begun := time.Now()
		id := b.call(t).Result.TaskID
		took := time.Since(begun)
		if want := ttl - took; id == "" || of.life != want || took < 10*time.Second {
			t.Errorf("after %v task %q has a place for %v, want %v", took, id, of.life, want)
		}
		got := b.get(t, id+"x")
		if got.Error == nil || got.Error.Code != mcp.INTERNAL_ERROR || !strings.Contains(got.Error.Message, "ask again") {
			t.Errorf("not found: %+v", got.Error)
		}
	})
}

// A call for which there is no room is answered as without the extension.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(time.Minute)
			return mcp.NewToolResultText(strings.Repeat("x", maxBytes/maxLive+1)), nil
		})
		for i := range maxLive {
			if got := b.call(t); got.Result.ResultType != "task" {
				t.Fatalf("call %d: %+v", i, got)
			}
		}
		for range 2 { // first too many run, then too much is kept
			if got := b.call(t); got.Result.TaskID != "" || len(got.Result.Content) != 1 {
				t.Errorf("too many: %+v", got.Result.ResultType)
			}
		}
		time.Sleep(ttl)
		synctest.Wait()
		if got := b.call(t); got.Result.ResultType != "task" {
			t.Errorf("after their life: %+v", got)
		}
	})
}

// A question of a task is answered later, and an answer of another form leaves it open; a panic and a call
// that is cancelled end as they should.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		round := 0
		b := newBench(t, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			time.Sleep(2 * time.Second)
			round++
			if round == 4 {
				panic("private")
			}
			if round < 3 {
				result := &mcp.CallToolResult{}
				result.ResultType, result.RequestState = mcp.ResultTypeInputRequired, fmt.Sprint(round)
				result.InputRequests = mcp.InputRequests{"ask": mcp.NewElicitationInputRequest(
					mcp.ElicitationParams{Message: "?", RequestedSchema: map[string]any{"type": "object"}})}
				return result, nil
			}
			answer := r.Params.InputResponses["ask"]
			if err := answer.DecodeFor(mcp.MethodElicitationCreate); err != nil {
				return nil, err
			}
			return mcp.NewToolResultText(fmt.Sprint(answer.Elicitation.Action, r.Params.RequestState)), nil
		})
		id := b.call(t).Result.TaskID
		for _, key := range []string{"ask", "ask-2"} {
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if got := b.get(t, id); got.Result.Status != inputRequired || got.Result.InputRequests[key] == nil {
				t.Fatalf("%s: %+v", key, got)
			}
			if got := b.send(t, MethodUpdate, fmt.Sprintf(`"taskId":%q,"inputResponses":{%q:1}`, id, key)); got.Error == nil {
				t.Errorf("an answer of another form: %+v", got)
			}
			b.send(t, MethodUpdate, fmt.Sprintf(`"taskId":%q,"inputResponses":{%q:{"action":"accept","content":{}}}`, id, key))
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := b.get(t, id); got.Result.Status != completed || got.Result.Result.Content[0].Text != "accept2" {
			t.Errorf("answered: %+v", got)
		}
		id = b.call(t).Result.TaskID
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := b.get(t, id); got.Result.Status != failed || got.Result.Error.Code != mcp.INTERNAL_ERROR {
			t.Errorf("panic: %+v", got)
		}
	})
}
