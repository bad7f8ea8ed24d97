package mcpserver

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/catalog"
)

const (
	methodListResources = "resources/list"
	methodReadResource  = "resources/read"
)

// skillMeta prefixes the _meta keys of a SKILL.md resource, after the Skills extension.
const skillMeta = "io.modelcontextprotocol.skills/"

// Keys of the _meta of an artifact's contents.
const (
	metaDigest = "skillsd/digest" // of the whole artifact
	metaSize   = "skillsd/size"   // of the whole artifact, in bytes
	metaNext   = "skillsd/next"   // URI of the part that follows
)

// listResources is resources/list: every file of every skill in byte order of its URI, paged by
// URI so that no name can hide another.
func (s *Server) listResources(ctx context.Context, r *request) (any, error) {
	result := &mcp.ListResourcesResult{Resources: []mcp.Resource{}}
	visible := s.visible(r.scope)
	if !visible.offers.reads {
		return result, nil
	}
	all := visible.groups()
	// The first group that may hold a URI behind r.after is the last one that starts before it.
	from, found := position(all, r.after, func(group []*skills.Skill) string { return baseURI(group[0]) })
	if !found && from > 0 {
		from--
	}
	// Files are indexed only as far as the page needs them.
	for _, group := range all[from:] {
		resources, err := s.resourcesOf(ctx, group)
		if err != nil {
			return nil, err
		}
		for _, resource := range resources {
			if resource.URI <= r.after {
				continue
			}
			if len(result.Resources) == pageSize {
				result.NextCursor = encodeCursor(result.Resources[pageSize-1].URI)
				return result, nil
			}
			result.Resources = append(result.Resources, resource)
		}
	}
	return result, nil
}

// indexOf returns a skill as it is on disk, with its index: all that a list says of one skill is of one
// version. A change that it finds is published.
//
// Errors: the errors of [skills.Registry.Index].
func (s *Server) indexOf(ctx context.Context, sk *skills.Skill) (*skills.Skill, *skills.Index, error) {
	fresh, index, err := s.cfg.Registry.Index(ctx, sk)
	if err != nil {
		return nil, nil, fmt.Errorf("index %s: %w", sk.Path, err)
	}
	if fresh != sk {
		s.Publish()
	}
	return fresh, index, nil
}

// resourcesOf returns the resources of a group, in byte order of URI. A skill whose files cannot be
// listed has none.
//
// Errors: ctx.
func (s *Server) resourcesOf(ctx context.Context, group []*skills.Skill) ([]mcp.Resource, error) {
	var resources []mcp.Resource
	// Nested skills come first, so that among equal URIs their SKILL.md is described as a skill and
	// not as a file of the enclosing one.
	for _, sk := range slices.Backward(group) {
		sk, index, err := s.indexOf(ctx, sk)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			s.cfg.Logger.WarnContext(ctx, "skill not listed", tint.Err(err))
			continue
		}
		resources = append(resources, skillFileResource(sk, index))
		for i := range index.Resources {
			resources = append(resources, fileResource(sk, &index.Resources[i]))
		}
	}
	slices.SortStableFunc(resources, func(a, b mcp.Resource) int { return strings.Compare(a.URI, b.URI) })
	return slices.CompactFunc(resources, func(a, b mcp.Resource) bool { return a.URI == b.URI }), nil
}

// groups divides skills into runs of a skill and those nested below it, in byte order of their URIs: a nested
// skill's files are files of the enclosing one too, so only whole groups have disjoint ranges of URIs.
func groups(all []*skills.Skill) [][]*skills.Skill {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b *skills.Skill) int { return strings.Compare(baseURI(a), baseURI(b)) })
	var groups [][]*skills.Skill
	for _, sk := range sorted {
		if last := len(groups) - 1; last >= 0 && strings.HasPrefix(baseURI(sk), baseURI(groups[last][0])) {
			groups[last] = append(groups[last], sk)
			continue
		}
		groups = append(groups, []*skills.Skill{sk})
	}
	return groups
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

// maxShown is the most characters of a description that lists show: as many as the skill format allows.
const maxShown = 1024

func shorten(description string) string {
	// Most of it may be characters that do not show, so the bound before Plain is larger.
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
			return nil, err
		}
		meta := map[string]any{metaDigest: artifact.Digest, metaSize: artifact.Size}
		if artifact.Next != "" {
			meta[metaNext] = artifact.Next
		}
		result := resourceResult(r.URI, artifact.MIMEType, artifact.Data, artifact.Text, meta)
		if r.Modern {
			// Each call can change an artifact. Older revisions know no such hint.
			result.SetCacheHints(0, mcp.CacheScopePrivate)
		}
		return result, nil
	}
	ses, err := s.cfg.Sessions.Open(ctx, call)
	if err != nil {
		return nil, err
	}
	read, err := ses.ReadURI(ctx, session.ReadRequest{Call: call, URI: r.URI})
	if err != nil {
		if failure, ok := errors.AsType[*session.Error](err); ok && failure.Rescanned {
			s.Publish()
		}
		return nil, err
	}
	meta := map[string]any{skillMeta + "digest": read.Got}
	return resourceResult(r.URI, read.MIMEType, read.Data, read.Text, meta), nil
}

// resourceResult is the result with the bytes of one resource: text if all of it is, else base64.
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
