package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/skillsd/skillsd/mcpserver/session"
	"github.com/skillsd/skillsd/skills"
)

const mimeDirectory = "inode/directory"

// readDirectory is resources/directory/read: the files and directories directly below a skill's
// directory, one of its directories, or one that skills lie in. Files are as resources/list has
// them. A directory without a file is not served and does not exist here.
func (s *Server) readDirectory(ctx context.Context, r *request) (any, error) {
	snapshot := s.cfg.Sessions.Visible(r.scope.principal, r.scope.profile)
	// Policy comes first: a caller that may not read must not learn which files exist.
	var about session.PermitRequest
	about.Skill, about.Path = locate(snapshot, r.URI)
	if err := s.permit(ctx, r.Method, r.Meta, about); err != nil {
		return nil, err
	}
	children, err := s.directory(ctx, snapshot, r.URI)
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
	ctx context.Context, snapshot *skills.Snapshot, uri string,
) ([]mcp.Resource, error) {
	refuse := func(what string) ([]mcp.Resource, error) {
		return nil, &session.Error{
			Code:    session.CodeResourceNotFound,
			Message: fmt.Sprintf("%q %s", clip(uri), what),
			Remedy: "send the URI of a skill's directory, which is that of its SKILL.md without the last " +
				"segment, or of one below it",
		}
	}
	path, err := skills.ParseURI(uri)
	if err != nil {
		return refuse("is not the URI of a directory")
	}
	children := childrenOf(snapshot, path)
	if sk, file := locate(snapshot, uri); sk != nil {
		fresh, index, err := s.indexOf(ctx, sk)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil:
			return nil, unreadable(sk, err)
		case file == sk.File || index.Resource(file) != nil:
			return refuse("is a file, not a directory resource")
		}
		children = append(children, filesIn(fresh, index, file)...)
	}
	if len(children) == 0 {
		return refuse("is not a directory this server serves")
	}
	slices.SortFunc(children, func(a, b mcp.Resource) int { return strings.Compare(a.URI, b.URI) })
	return slices.CompactFunc(children, func(a, b mcp.Resource) bool { return a.URI == b.URI }), nil
}

// childrenOf returns the directories directly below one that skills lie in.
func childrenOf(snapshot *skills.Snapshot, dir string) (children []mcp.Resource) {
	prefix, seen := dir+"/", map[string]bool{}
	first, _ := position(snapshot.Skills, prefix, func(sk *skills.Skill) string { return sk.Path })
	for _, sk := range snapshot.Skills[first:] {
		rest, below := strings.CutPrefix(sk.Path, prefix)
		if !below {
			break
		}
		if name, _, _ := strings.Cut(rest, "/"); !seen[name] {
			seen[name] = true
			children = append(children, directoryResource(dir, name))
		}
	}
	return children
}

// filesIn returns the files, and the directories of files, directly below a directory of a skill;
// dir is empty for the skill's own.
func filesIn(sk *skills.Skill, index *skills.Index, dir string) (children []mcp.Resource) {
	prefix, path := "", sk.Path
	if dir != "" {
		prefix, path = dir+"/", sk.Path+"/"+dir
	}
	seen := map[string]bool{}
	for i := range index.Files {
		rest, below := strings.CutPrefix(index.Files[i].Path, prefix)
		if !below {
			continue
		}
		name, _, deeper := strings.Cut(rest, "/")
		switch {
		case deeper && !seen[name]:
			seen[name] = true
			children = append(children, directoryResource(path, name))
		case !deeper && prefix == "" && name == sk.File:
			children = append(children, skillFileResource(sk, index))
		case !deeper:
			children = append(children, fileResource(sk, index.Resource(prefix+name)))
		}
	}
	return children
}

func directoryResource(in, name string) mcp.Resource {
	// The URI of a directory is written as if it were a file of a skill.
	return mcp.Resource{URI: (&skills.Skill{Path: in}).URI(name), Name: name, MIMEType: mimeDirectory}
}
