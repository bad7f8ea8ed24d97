package native

import "github.com/skillsd/skillsd/sandbox"

// capture keeps a stream and counts it where the limit is watched.
type capture struct {
	kept  *sandbox.Capture
	total int64
}

func newCapture(limit int64) *capture { return &capture{kept: sandbox.NewCapture(limit)} }

func (c *capture) write(p []byte) {
	c.total += int64(len(p))
	_, _ = c.kept.Write(p)
}

func (c *capture) stream() sandbox.Stream { return c.kept.Stream() }
