package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// httpStream writes the messages of one response. It is the writer under a lineWriter, which calls it with
// one message at a time. If a message precedes the answer, the response becomes an event stream.
type httpStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	events  bool // the client accepts event streams
	begun   bool
	answer  bool // the next message is the answer
	status  int  // for an answer that is not a stream
}

func newHTTPStream(w http.ResponseWriter, r *http.Request, timeout time.Duration) *httpStream {
	control := http.NewResponseController(w)
	// The server's deadlines are for requests that do not wait. A read deadline would end a long call,
	// because net/http keeps reading to detect that the client disconnects.
	control.SetReadDeadline(time.Time{})
	control.SetWriteDeadline(time.Time{})
	return &httpStream{
		w: w, control: control, timeout: timeout,
		events: acceptsEvents(r.Header.Values("Accept")), status: http.StatusOK,
	}
}

// Write writes one line as an event, as a comment if it starts with a colon, or as the whole response.
func (s *httpStream) Write(line []byte) (int, error) {
	// A client that does not read must not hold the call and its resources forever.
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

// begin turns the response into an event stream.
func (s *httpStream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	header := s.w.Header()
	header.Set("Content-Type", "text/event-stream")
	// This header keeps nginx from buffering the events.
	header.Set("X-Accel-Buffering", "no")
	s.w.WriteHeader(http.StatusOK)
}

// notEvents refuses a stream if the client does not accept event streams.
const notEvents = "Accept must name text/event-stream"

// acceptsEvents reports whether an Accept header, if any, includes event streams.
func acceptsEvents(accept []string) bool {
	all := strings.ToLower(strings.Join(accept, ","))
	return len(accept) == 0 || strings.Contains(all, "text/event-stream") ||
		strings.Contains(all, "text/*") || strings.Contains(all, "*/*")
}

// keepAlive writes a comment to out at each interval, until out is closed. The timer may be stopped earlier.
func keepAlive(out *lineWriter, interval time.Duration) *time.Timer {
	var timer *time.Timer
	// The function uses timer, so it must not run before timer is set.
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
