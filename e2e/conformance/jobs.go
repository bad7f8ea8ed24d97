package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/tasks"
	"github.com/skillsd/skillsd/mcpserver/wire"
)

// A call becomes a task after patience; a job takes longer.
const (
	patience = 20 * time.Millisecond
	lasts    = 500 * time.Millisecond
)

// addTasks registers the tools whose calls may become tasks, and one that answers at once.
func (f *fixture) addTasks() {
	text := func(format string, args ...any) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText(fmt.Sprintf(format, args...)), nil
	}
	f.addTool("greet", "", func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("Hello, %s!", r.GetString("name", ""))
	})
	f.addJob("slow_compute", false,
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			err := work(ctx, time.Duration(r.GetInt("seconds", 0))*time.Second)
			return mcp.NewToolResultText("computed"), err
		})
	f.addJob("failing_job", true,
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultError("it fails, as it should"), work(ctx, lasts)
		})
	f.addJob("protocol_error_job", false,
		func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if err := work(ctx, lasts); err != nil {
				return nil, err
			}
			return nil, &wire.Error{Code: mcp.INTERNAL_ERROR, Message: "it fails, as it should"}
		})
	asks := ask("Please confirm", `{"confirm":{"type":"boolean"}}`, "confirm")
	for name, questions := range map[string]mcp.InputRequests{
		"confirm_delete": {"confirm": asks},
		"multi_input":    {"first": asks, "second": asks},
	} {
		f.addJob(name, false, func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if answered(questions, r.Params.InputResponses) {
				return text("confirmed")
			}
			result := &mcp.CallToolResult{}
			result.ResultType, result.InputRequests = mcp.ResultTypeInputRequired, questions
			return result, work(ctx, lasts)
		})
	}
	// This tool asks a question before its call becomes a task.
	named := mcp.InputRequests{"user_name": ask("What is your name?", `{"name":{"type":"string"}}`, "name")}
	f.addJob("test_tool_with_task", true,
		func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if !answered(named, r.Params.InputResponses) {
				result := &mcp.CallToolResult{}
				result.ResultType, result.InputRequests = mcp.ResultTypeInputRequired, named
				return result, nil
			}
			if err := work(ctx, lasts); err != nil {
				return nil, err
			}
			name, err := json.Marshal(r.Params.InputResponses["user_name"])
			if err != nil {
				return nil, err
			}
			return text("%s", name)
		})
}

// addJob registers a tool whose calls may become tasks. If required is set, it can be called only as a task.
func (f *fixture) addJob(name string, required bool, handle tasks.Handler) {
	f.add(name, "", func(ctx context.Context, r mcp.CallToolRequest) (any, error) {
		if required && !tasks.Declares(ctx) {
			return nil, tasks.Missing()
		}
		return f.tasks.Call(ctx, r, handle)
	})
}

// work waits for d, or until ctx ends.
func work(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
