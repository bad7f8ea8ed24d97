package mcpserver

import (
	"context"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
)

// The template of a session's own artifacts, and its variable: the name of a file of the session.
const (
	artifactTemplateURI = session.ArtifactBase + "{+name}"
	artifactVariable    = "name"
)

// Keys of the _meta of an artifact's contents.
const (
	metaDigest = "skillsd/digest" // of the whole artifact
	metaSize   = "skillsd/size"   // of the whole artifact, in bytes
	metaNext   = "skillsd/next"   // URI of the part that follows
)

// artifactTemplate describes the artifacts. No list holds them: a list must not change because
// of calls, and each session has its own.
func artifactTemplate() mcp.ResourceTemplate {
	return mcp.NewResourceTemplate(artifactTemplateURI, "Session artifact",
		mcp.WithTemplateDescription("A file of this session's record, such as skill-activations.json or "+
			"events.jsonl, or a released output of a script. "+
			"Over HTTP add ?activation=HANDLE, the handle that load_skill returned. "+
			"Long ones come in parts: _meta[\""+metaNext+"\"] is the URI of the part that follows."))
}

// readArtifact is resources/read of a file of the caller's own session.
func (s *Server) readArtifact(ctx context.Context, call session.Call, uri string, modern bool) (any, error) {
	artifact, err := s.cfg.Sessions.ReadArtifact(ctx, call, uri)
	if err != nil {
		return nil, &resourceError{err, uri}
	}
	meta := map[string]any{metaDigest: artifact.Digest, metaSize: artifact.Size}
	if artifact.Next != "" {
		meta[metaNext] = artifact.Next
	}
	result := resourceResult(uri, artifact.MIMEType, artifact.Data, artifact.Text, meta)
	if modern {
		// Each call can change an artifact. Older revisions know no such hint.
		result.SetCacheHints(0, mcp.CacheScopePrivate)
	}
	return result, nil
}

// completeArtifact returns the artifact names of the caller's session that start with value.
func (s *Server) completeArtifact(
	ctx context.Context, method string, meta map[string]any, value string,
) []string {
	call, err := s.callOf(ctx, method, meta)
	if err != nil {
		return nil
	}
	names := slices.Clone(s.cfg.Sessions.ArtifactNames(ctx, call))
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, value) })
}
