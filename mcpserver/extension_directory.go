package mcpserver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/mcpserver/session/fault"
	"github.com/skillsd/skillsd/skills"
	"github.com/skillsd/skillsd/skills/policy"
)

const mimeDirectory = "inode/directory"

// readDirectory is resources/directory/read: the files and directories directly below a skill's directory,
// one of its subdirectories, or a directory above skills. Files are described as in resources/list; all but
// SKILL.md are named as in the directory. A directory without files does not exist here, nor does a directory
// of a skill that is hidden from models and not loaded by the session.
func (s *Server) readDirectory(ctx context.Context, r *request) (any, error) {
	snapshot := s.cfg.Sessions.Visible(r.scope.principal, r.scope.profile)
	// Policy is checked first: a caller without the right to read must not learn which files exist.
	sk, path := locate(snapshot, r.URI)
	ses, _, err := s.permit(ctx, r, sk, path)
	if err != nil {
		return nil, err
	}
	children, err := s.directory(ctx, ses, snapshot, r.URI)
	if err != nil {
		return nil, err
	}
	children = following(children, r.after, func(child mcp.Resource) string { return child.URI })
	result := new(mcp.ListResourcesResult)
	result.Resources = children[:min(len(children), pageSize)]
	if len(children) > pageSize {
		result.NextCursor = encodeCursor(children[pageSize-1].URI)
	}
	return result, nil
}

// directory returns the direct children of a directory, in byte order of URI.
//
// Errors: *session.Error, ctx.
func (s *Server) directory(
	ctx context.Context, ses *session.Session, snapshot *skills.Snapshot, uri string,
) ([]mcp.Resource, error) {
	refuse := func(what string) ([]mcp.Resource, error) {
		return nil, &session.Error{
			Code: fault.CodeResourceNotFound, Message: fmt.Sprintf("%q %s", policy.Clip(uri), what),
			Remedy: "send the URI of a skill's directory, which is that of its SKILL.md without the last " +
				"segment, or of one below it",
		}
	}
	path, err := skills.ParseURI(uri)
	if err != nil {
		return refuse("is not the URI of a directory")
	}
	children := map[string]mcp.Resource{} // by name
	add := func(name string) {
		// The URI of a directory has the form of a skill's file.
		uri := (&skills.Skill{Path: path}).URI(name)
		children[name] = mcp.Resource{URI: uri, Name: name, MIMEType: mimeDirectory}
	}
	for _, sk := range snapshot.Skills {
		if rest, below := strings.CutPrefix(sk.Path, path+"/"); below && !ses.Hides(sk, "") {
			name, _, _ := strings.Cut(rest, "/")
			add(name)
		}
	}
	if sk, dir := locate(snapshot, uri); sk != nil && !ses.Hides(sk, dir) {
		fresh, index, err := s.cfg.Registry.Index(ctx, sk)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, unreadable(sk, err)
		case dir == sk.File || index.Resource(dir) != nil:
			return refuse("is a file, not a directory resource")
		}
		prefix := strings.TrimPrefix(dir+"/", "/") // empty for the skill's own directory
		for i := range index.Files {
			rest, below := strings.CutPrefix(index.Files[i].Path, prefix)
			name, _, deeper := strings.Cut(rest, "/")
			switch {
			case !below, ses.Hides(fresh, index.Files[i].Path):
			case deeper:
				add(name)
			default:
				children[name] = childResource(fresh, index, index.Files[i].Path, name)
			}
		}
	}
	if len(children) == 0 {
		return refuse("is not a directory this server serves")
	}
	return slices.SortedFunc(maps.Values(children), func(a, b mcp.Resource) int {
		return strings.Compare(a.URI, b.URI)
	}), nil
}

// childResource returns a file of a skill with its name in a directory.
func childResource(sk *skills.Skill, index *skills.Index, path, name string) mcp.Resource {
	if path == sk.File {
		return skillFileResource(sk, index)
	}
	file := fileResource(sk, index.Resource(path))
	// The directories in the list have the same form of a name.
	file.Name = name
	return file
}
