package mcpserver

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

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
			if r.Body, err = r.GetBody(); err != nil {
				t.Fatal(err)
			}
		}
		return nil, refused
	})}
	r := httptest.NewRequest(http.MethodPost, "/mcp", strings.NewReader("read before"))
	if err := c.forward(httptest.NewRecorder(), r, []byte("message"), "other:1"); !errors.Is(err, refused) {
		t.Errorf("forward = %v", err)
	}
}
