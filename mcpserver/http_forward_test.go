package mcpserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// What a server does that ends, or is killed, in the middle of an answer is no success for the client of the
// server that has forwarded the request.
func TestForwardedCutOff(t *testing.T) {
	const message = `{"jsonrpc":"2.0","id":1,"result":{}}`
	var peer *httptest.Server
	flush := func(w http.ResponseWriter) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"whole":    func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, message) },
		"canceled": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"empty":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) },
		"no body": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(message)))
			flush(w)
			panic(http.ErrAbortHandler)
		},
		"part": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(len(message)))
			io.WriteString(w, message[:5])
			flush(w)
			panic(http.ErrAbortHandler)
		},
		"events": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, "event: message\ndata: {}\n\n")
			flush(w)
			panic(http.ErrAbortHandler)
		},
		"killed": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, ": keep-alive\n\n")
			flush(w)
			peer.CloseClientConnections()
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			peer = httptest.NewUnstartedServer(http.HandlerFunc(answer))
			peer.Config.ErrorLog = log.New(io.Discard, "", 0)
			peer.EnableHTTP2 = true
			peer.StartTLS()
			defer peer.Close()
			c := &Cluster{Transport: peer.Client().Transport}
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if c.forward(w, r, []byte("message"), peer.Listener.Addr().String(), peer.Config.ErrorLog) != nil {
					w.WriteHeader(http.StatusBadGateway)
				}
			}))
			defer front.Close()
			response, err := front.Client().Post(front.URL, "application/json", strings.NewReader("read before"))
			status, text := 0, []byte(nil)
			if err == nil {
				status = response.StatusCode
				text, err = io.ReadAll(response.Body)
				response.Body.Close()
			}
			want := map[string]int{"whole": http.StatusOK, "canceled": http.StatusAccepted}[name]
			if succeeds := err == nil && status/100 == 2; succeeds != (want != 0) || succeeds && status != want {
				t.Errorf("status %d, %q, %v", status, text, err)
			}
		})
	}
}

// A server that ends refuses what reached it too late, and HTTP/2 sends a request again whose body it can have
// once more.
func TestForwardedAgain(t *testing.T) {
	refused := errors.New("refused")
	c := &Cluster{Transport: transport(func(r *http.Request) (*http.Response, error) {
		for range 2 {
			sent, err := io.ReadAll(r.Body)
			if string(sent) != "message" || err != nil {
				t.Errorf("sent %q, %v", sent, err)
			}
			if r.GetBody == nil {
				t.Fatal("the body can be sent once")
			}
			r.Body, err = r.GetBody()
			if err != nil {
				t.Fatal(err)
			}
		}
		return nil, refused
	})}
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("read before"))
	if err := c.forward(httptest.NewRecorder(), r, []byte("message"), "other:1", nil); !errors.Is(err, refused) {
		t.Errorf("forward = %v", err)
	}
}

// An answer is to be sent again if a server that nobody has reached may be the one that it is for.
func TestSpread(t *testing.T) {
	away := errors.New("away")
	answers := func(status int) transport {
		return func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: http.NoBody}, nil
		}
	}
	for name, c := range map[string]struct {
		transport transport
		others    error
		fails     bool
	}{
		"taken":         {answers(http.StatusAccepted), nil, false},
		"taken in time": {answers(http.StatusAccepted), away, false},
		"not its":       {answers(http.StatusMisdirectedRequest), nil, false},
		"not asked":     {answers(http.StatusMisdirectedRequest), away, true},
		"busy":          {answers(http.StatusServiceUnavailable), nil, true},
		"gone":          {func(*http.Request) (*http.Response, error) { return nil, away }, nil, false},
		"hangs": {func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cluster := &Cluster{Transport: c.transport, Others: func(ctx context.Context, found func(string)) error {
					found("other:1")
					<-ctx.Done()
					return c.others
				}}
				err := cluster.spread(httptest.NewRequest(http.MethodPost, "/mcp", nil), []byte("message"))
				if (err != nil) != c.fails {
					t.Errorf("spread = %v", err)
				}
			})
		})
	}
}
