package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// httpStream writes the messages of one response. It is the writer under a lineWriter, which calls it for one
// message at a time. The response becomes an event stream with the first message that is not the answer.
type httpStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	events  bool // the client reads event streams
	begun   bool
	answer  bool // the next message is the answer
	status  int  // of a plain answer
}

func newHTTPStream(w http.ResponseWriter, r *http.Request, timeout time.Duration) *httpStream {
	control := http.NewResponseController(w)
	// The server's own deadlines are for requests that do not wait. The one for reading would
	// end a call that takes longer: net/http keeps reading to notice that the client left.
	control.SetReadDeadline(time.Time{})
	control.SetWriteDeadline(time.Time{})
	return &httpStream{
		w: w, control: control, timeout: timeout,
		events: acceptsEvents(r.Header.Values("Accept")), status: http.StatusOK,
	}
}

// Write writes one line as an event, as a comment when it starts with a colon, or as the
// whole of the response.
func (s *httpStream) Write(line []byte) (int, error) {
	// A client that takes nothing must not hold the call, nor what it holds, for ever.
	s.control.SetWriteDeadline(time.Now().Add(s.timeout))
	if !s.answer {
		defer s.control.SetWriteDeadline(time.Time{})
	}
	if s.answer && !s.begun {
		s.w.Header().Set("Content-Type", "application/json")
		s.w.Header().Set("Content-Length", strconv.Itoa(len(line)))
		s.w.WriteHeader(s.status)
		return s.w.Write(line)
	}
	if !s.events {
		return len(line), nil
	}
	s.begin()
	event := make([]byte, 0, len(line)+32)
	if line[0] != ':' {
		event = append(event, "event: message\ndata: "...)
	}
	event = append(append(event, line...), '\n')
	if _, err := s.w.Write(event); err != nil {
		return 0, err
	}
	return len(line), s.control.Flush()
}

// begin makes the response an event stream.
func (s *httpStream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
}

// notEvents refuses a stream that its client says it cannot read.
const notEvents = "Accept must name text/event-stream"

// acceptsEvents reports whether an Accept header, when there is one, names event streams.
func acceptsEvents(accept []string) bool {
	all := strings.ToLower(strings.Join(accept, ","))
	return len(accept) == 0 || strings.Contains(all, "text/event-stream") ||
		strings.Contains(all, "text/*") || strings.Contains(all, "*/*")
}

// keepAlive writes a comment to out each time interval has passed, until out is closed. The
// timer may be stopped before.
func keepAlive(out *lineWriter, interval time.Duration) *time.Timer {
	var timer *time.Timer
	timer = time.AfterFunc(math.MaxInt64, func() {
		out.write([]byte(": keep-alive"))
		select {
		case <-out.closed:
		case <-out.failed:
		default:
			timer.Reset(interval)
		}
	})
	timer.Reset(interval)
	return timer
}
