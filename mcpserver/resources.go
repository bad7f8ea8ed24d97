package mcpserver

import (
	"context"
	"encoding/base64"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/mcpserver/wire"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
)

const (
	methodListResources = "resources/list"
	methodReadResource  = "resources/read"
)

// skillMeta prefixes the _meta keys of a SKILL.md resource. The conformance suite requires the prefix of the
// Skills extension even for keys of the server's own.
const skillMeta = "io.modelcontextprotocol.skills/"

// Keys of the _meta of an artifact's contents.
const (
	metaDigest = "skillsd/digest" // of the whole artifact
	metaSize   = "skillsd/size"   // of the whole artifact, in bytes
	metaNext   = "skillsd/next"   // URI of the part that follows
)

// listResources is resources/list: the SKILL.md of every skill that is not hidden from models, in byte order
// of URI and paged by URI. Models request this list, and clients truncate a long one; the other files are in
// the answer of load_skill, in directory reads and skills/get, and covered by the template.
func (s *Server) listResources(ctx context.Context, r *request) (any, error) {
	result := &mcp.ListResourcesResult{Resources: []mcp.Resource{}}
	visible := s.visible(r.scope)
	// A profile without the read tool must not give access to files through resources.
	if !visible.offers.reads {
		return result, nil
	}
	rest := following(visible.entries(), r.after, uriOf)
	for i := range rest {
		if rest[i].skill.Hidden() {
			continue
		}
		if len(result.Resources) == pageSize {
			result.NextCursor = encodeCursor(result.Resources[pageSize-1].URI)
			break
		}
		sk, index, err := s.cfg.Registry.Index(ctx, rest[i].skill)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			s.cfg.Logger.WarnContext(ctx, "skill not listed", tint.Err(err))
			continue
		}
		// An edit may have hidden the skill since it was listed, so this is checked now.
		if !sk.Hidden() {
			result.Resources = append(result.Resources, skillFileResource(sk, index))
		}
	}
	return result, nil
}

// skillFileResource describes a skill's SKILL.md, named after the skill.
func skillFileResource(sk *skills.Skill, index *skills.Index) mcp.Resource {
	size := sk.Size
	return mcp.Resource{
		URI:         sk.URI(sk.File),
		Name:        sk.Name(),
		Description: shorten(sk.Description()),
		MIMEType:    "text/markdown",
		Size:        &size,
		Meta: &mcp.Meta{AdditionalFields: map[string]any{
			skillMeta + "digest":       sk.Digest,
			skillMeta + "treeDigest":   index.TreeDigest,
			skillMeta + "lastModified": sk.LastModified.UTC().Format(time.RFC3339),
		}},
	}
}

// fileResource describes any other file.
func fileResource(sk *skills.Skill, r *skills.Resource) mcp.Resource {
	size := r.Size
	return mcp.Resource{
		URI:      sk.URI(r.Path),
		Name:     sk.Path + "/" + r.Path,
		MIMEType: r.MIMEType,
		Size:     &size,
		Meta:     &mcp.Meta{AdditionalFields: map[string]any{skillMeta + "digest": r.Digest}},
	}
}

// maxShown is the maximum number of characters of a description in lists, as in the skill format.
const maxShown = 1024

func shorten(description string) string {
	// Much of it may be invisible characters, so the bound before Plain is larger.
	description = catalog.Plain(description[:min(len(description), 16*maxShown)])
	if len(description) <= maxShown {
		return description
	}
	if r := []rune(description); len(r) > maxShown {
		return string(r[:maxShown-1]) + "…"
	}
	return description
}

// readResource is resources/read: one file, verified against the snapshot as it is read.
func (s *Server) readResource(ctx context.Context, r *request) (any, error) {
	call, err := s.callOf(ctx, r.Method, r.Meta)
	if err != nil {
		return nil, err
	}
	if session.IsArtifact(r.URI) {
		artifact, err := s.cfg.Sessions.ReadArtifact(ctx, call, r.URI)
		if err != nil {
			passOn(ctx, err)
			return nil, err
		}
		meta := map[string]any{metaDigest: artifact.Digest, metaSize: artifact.Size}
		if artifact.Next != "" {
			meta[metaNext] = artifact.Next
		}
		result := resourceResult(r.URI, artifact.MIMEType, artifact.Data, artifact.Text, meta)
		if r.Modern {
			// Each call can change an artifact. Older revisions have no such hint.
			result.SetCacheHints(0, mcp.CacheScopePrivate)
		}
		return result, nil
	}
	ses, err := s.cfg.Sessions.Open(ctx, call)
	if err != nil {
		passOn(ctx, err)
		return nil, err
	}
	read, err := ses.ReadURI(ctx, session.ReadRequest{Call: call, URI: r.URI})
	if err != nil {
		return nil, err
	}
	meta := map[string]any{skillMeta + "digest": read.Got}
	return resourceResult(r.URI, read.MIMEType, read.Data, read.Text, meta), nil
}

// room waits for memory for a file that the request of ctx reads.
//
// Errors: *session.Error.
func room(ctx context.Context, size int64) error {
	if wire.Hold(ctx, int(size)) {
		return nil
	}
	return &session.Error{Code: fault.CodeServerBusy, Message: "too many large files are being read",
		Remedy: "call again in 10 seconds"}
}

// resourceResult returns a result with the bytes of one resource, as text or as base64.
func resourceResult(
	uri, mimeType string, data []byte, isText bool, meta map[string]any,
) *mcp.ReadResourceResult {
	var contents mcp.ResourceContents
	if isText {
		contents = mcp.TextResourceContents{URI: uri, MIMEType: mimeType, Text: string(data), Meta: meta}
	} else {
		blob := base64.StdEncoding.EncodeToString(data)
		contents = mcp.BlobResourceContents{URI: uri, MIMEType: mimeType, Blob: blob, Meta: meta}
	}
	return &mcp.ReadResourceResult{Contents: []mcp.ResourceContents{contents}}
}
