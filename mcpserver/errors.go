package mcpserver

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lmittmann/tint"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/cfharness"
)

// codeDenied is the JSON-RPC error code of a denial outside of a tool call.
const codeDenied = 1403

// plainText is a plain error as shown by a tool; the order of the keys is part of the contract.
type plainText struct {
	Code    fault.Code `json:"code"`
	Message string     `json:"message"`
	Remedy  string     `json:"remedy"`
	URI     string     `json:"uri,omitempty"` // the resource in a call that is not a tool call
}

// toolError returns the result of a failed tool call: a denial, a plain error, or, for anything else, an
// internal error with its cause only in the log. Cancelled calls and calls of tools that are not offered
// return an error instead, which the wire handles.
func (s *Server) toolError(ctx context.Context, tool string, err error) (*mcp.CallToolResult, error) {
	if denial, ok := errors.AsType[*session.Denied](err); ok {
		traceFailure(ctx, string(denial.Object.Code))
		// The conformance suite takes a finished tool result to mean that the server accepted the state.
		if denial.Object.RuleID == session.RuleStateForged {
			return nil, &wire.Error{Code: mcp.INVALID_PARAMS,
				Message: sentences(denial.Object.Detail, denial.Object.Remedy), Data: denial.Object}
		}
		// The text and the structured content have the same object, because clients show only one of them.
		object, err := provenance.Encode(denial.Object)
		if err != nil {
			return nil, err
		}
		detail := strings.TrimPrefix(denial.Object.Detail, tool+": ")
		answer := textResult(sentences("Refused: "+detail)+"\n"+string(object), nil)
		answer.IsError, answer.StructuredContent = true, object
		return answer, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return nil, err
	}
	plain := s.plain(ctx, err)
	output := plain.Output
	if output == nil {
		output = cfharness.FailedOutput{
			Status: cfharness.StatusError,
			Error:  cfharness.RecordError{Code: string(plain.Code), Message: plain.Message},
		}
	}
	object, err := provenance.Encode(plainText{Code: plain.Code, Message: plain.Public(),
		Remedy: plain.Remedy})
	if err != nil {
		return nil, err
	}
	answer := textResult(sentences(plain.Public())+"\n"+string(object), output)
	answer.IsError = true
	return answer, nil
}

// sentences joins texts to the first line of an error. Clients show users the first lines of a text; the last
// line is the object with the remedy.
func sentences(texts ...string) string {
	var b strings.Builder
	for _, text := range texts {
		if text == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		first, size := utf8.DecodeRuneInString(text)
		if word, _, _ := strings.Cut(text, " "); !strings.Contains(word, "_") { // not the name of a tool
			first = unicode.ToUpper(first)
		}
		b.WriteRune(first)
		b.WriteString(oneLine(text[size:]))
		if !strings.ContainsAny(text[len(text)-1:], ".?!") {
			b.WriteByte('.')
		}
	}
	return b.String()
}

// methodError converts an error of a method that is not a tool call. An error that is already meant for the
// wire is returned unchanged.
func (s *Server) methodError(ctx context.Context, r *request, err error) error {
	if err == nil {
		return nil
	}
	if public, ok := errors.AsType[*wire.Error](err); ok {
		return public
	}
	if denial, ok := errors.AsType[*session.Denied](err); ok {
		traceFailure(ctx, string(denial.Object.Code))
		return &wire.Error{Code: codeDenied, Message: denial.Object.Detail, Data: denial.Object}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	plain := s.plain(ctx, err)
	failure := &wire.Error{Code: mcp.INTERNAL_ERROR, Message: plain.Public()}
	switch plain.Code {
	case fault.CodeSkillNotFound, fault.CodeSkillAmbiguous, fault.CodeResourceNotIndexed,
		fault.CodeResourceNotFound, fault.CodeResourceNotFile, fault.CodeResourceChanged:
		failure.Code = mcp.INVALID_PARAMS
		// Revisions before 2026-07-28 have a code of their own for an unknown resource.
		if r.Method == methodReadResource && !r.Modern {
			failure.Code = mcp.RESOURCE_NOT_FOUND
		}
	case fault.CodeResourcePathInvalid, fault.CodeInvalidArguments, fault.CodePromptSlotInvalid:
		failure.Code = mcp.INVALID_PARAMS
	}
	text := plainText{Code: plain.Code, Message: plain.Public(), Remedy: plain.Remedy}
	if r.Method == methodReadResource {
		text.URI = r.URI
	}
	failure.Data = text
	return failure
}

// plain converts err to a plain error and logs a cause that the client does not see.
func (s *Server) plain(ctx context.Context, err error) *session.Error {
	plain, ok := errors.AsType[*session.Error](err)
	if !ok {
		plain = fault.Internal(err)
	}
	traceFailure(ctx, string(plain.Code))
	code := slog.String("code", string(plain.Code))
	switch plain.Code {
	case fault.CodeInternal, fault.CodeProvenanceUnavailable:
		s.cfg.Logger.ErrorContext(ctx, "call not served", code, tint.Err(plain.Err))
	case fault.CodeServerBusy, fault.CodeRecordsFull:
		s.cfg.Logger.WarnContext(ctx, "call not served", code, tint.Err(plain.Err))
	case fault.CodeSandboxUnavailable:
		s.cfg.Logger.WarnContext(ctx, "script not run", tint.Err(plain.Err))
	}
	return plain
}
