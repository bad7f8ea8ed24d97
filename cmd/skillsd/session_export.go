package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/skillsd/skillsd/provenance"
	"github.com/skillsd/skillsd/provenance/filestore"
	"github.com/skillsd/skillsd/provenance/intoto"
)

// sessionExportOptions are the flags of session export.
type sessionExportOptions struct {
	app    *app
	Format string
}

func newSessionExportCmd(a *app) *cobra.Command {
	opts := &sessionExportOptions{app: a}
	cmd := &cobra.Command{
		Use:   "export [SESSION]",
		Short: "Print a session for other tools",
		Long: "Print a session as one JSON document (json: events, views, snapshots, outputs and what was shown), or for each\n" +
			"run one unsigned in-toto Statement a line (intoto), with the run's outputs as the subject and skill tree,\n" +
			"script, arguments, sandbox, policy decision and place in the record as the predicate of type\n" +
			intoto.ExecutionType + ".\nA record is not verified beyond its chain; see `skillsd session verify`. Without SESSION it is the newest.",
		Args: cobra.MaximumNArgs(1),
		RunE: runE(func(_ context.Context, args []string) error { return opts.run(sessionArg(args)) }),
	}
	cmd.Flags().StringVar(&opts.Format, "format", "json", "`FORMAT`: json or intoto")
	return cmd
}

func (o *sessionExportOptions) run(name string) error {
	if o.Format != "json" && o.Format != "intoto" {
		return usageError("use json or intoto", "--format %q is unknown", o.Format)
	}
	dir, id, err := o.app.findSession(name)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(o.app.out)
	if o.Format == "intoto" {
		err = exportStatements(out, dir, id)
	} else {
		err = exportDocument(out, dir, id)
	}
	return brokenRecord(errors.Join(err, out.Flush()))
}

func exportStatements(w io.Writer, dir, id string) error {
	var approvals intoto.Approvals
	for e, err := range filestore.ReadEvents(dir, id) {
		if err != nil {
			return err
		}
		approvals.Add(e)
		st, err := intoto.NewStatement(e)
		if err != nil {
			return err
		}
		if st == nil {
			continue
		}
		st.Predicate.Approval = approvals.Of(e)
		raw, err := provenance.Encode(st)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\n", raw); err != nil {
			return err
		}
	}
	return nil
}

// exportDocument prints {"type", "version", "id", "events": […], "files": {name: …}}: a file of JSON
// stands as such, another as {"text"} or {"base64"}.
func exportDocument(w io.Writer, dir, id string) error {
	fmt.Fprintf(w, "{\"type\":\"skillsd.session-export\",\"version\":1,\"id\":%q,\"events\":[", id)
	separator := "\n"
	for e, err := range filestore.ReadEvents(dir, id) {
		if err != nil {
			return err
		}
		line, err := provenance.EncodeLine(e)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s%s", separator, bytes.TrimSuffix(line, []byte("\n")))
		separator = ",\n"
	}
	fmt.Fprint(w, "\n],\"files\":{")
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	sub, err := root.OpenRoot(id)
	if err != nil {
		return err
	}
	defer sub.Close()
	separator = "\n"
	for _, parent := range []string{".", provenance.OutputsDir, provenance.ShownDir} {
		entries, err := fs.ReadDir(sub.FS(), parent)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, en := range entries {
			name := path.Join(parent, en.Name())
			if !en.Type().IsRegular() || name == provenance.EventsFile || name == provenance.LockFile {
				continue
			}
			value, err := exportFile(sub, name)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			key, err := provenance.Encode(name)
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s%s:%s", separator, key, value); err != nil {
				return err
			}
			separator = ",\n"
		}
	}
	_, err = fmt.Fprint(w, "\n}}\n")
	return err
}

// maxExportFile bounds a file of an export, in bytes.
const maxExportFile = 1 << 30

func exportFile(dir *os.Root, name string) (json.RawMessage, error) {
	file, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxExportFile+1))
	if err == nil && len(data) > maxExportFile {
		err = fmt.Errorf("over %d bytes", maxExportFile)
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	switch {
	case path.Ext(name) == ".json" && json.Compact(&compact, data) == nil:
		return compact.Bytes(), nil
	case utf8.Valid(data):
		return provenance.Encode(map[string]string{"text": string(data)})
	}
	return provenance.Encode(map[string]string{"base64": base64.StdEncoding.EncodeToString(data)})
}
