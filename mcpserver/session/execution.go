package session

import (
	"github.com/skillsd/skillsd/sandbox"
	"github.com/skillsd/skillsd/skills/policy"
	"github.com/skillsd/skillsd/skills/script"
)

// execution decides how the script gets to its interpreter: as a file of its tree, or on standard
// input, where the entry says so.
func (r *run) execution(info script.Info, interpreter string) *Error {
	if r.grant.Entry.Execution != policy.ExecutionStdin {
		r.cmd.Argv, r.cmd.Stdin = script.Argv(info, interpreter, sandbox.SkillDir+"/"+r.path, r.grant.Args), r.in.Stdin
		return nil
	}
	if r.in.Stdin != nil {
		return &Error{Code: CodeInvalidArguments, Message: "the script takes no stdin: it is handed to its interpreter there",
			Remedy: "leave stdin out, and pass the text as an argument"}
	}
	text, err := r.tree.ReadFile(r.path)
	if err != nil {
		return internalError(err)
	}
	plain := *r.file.Script // without the permissions that the entry adds
	if problem := script.StdinProblem(plain, text); problem != "" {
		return &Error{Code: CodeUnsupportedRuntime, Message: "the script cannot be run on standard input: " + problem,
			Remedy: "the operator can leave execution out of the script's entry"}
	}
	r.cmd.Argv, r.cmd.Stdin = script.StdinArgv(info, interpreter, r.grant.Args), text
	return nil
}
