package page

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"net/http"
	"time"

	"github.com/skillsd/skillsd/mcpserver/session/approval"
)

// Waiting is a call that was refused because its client could not ask the user.
type Waiting struct {
	Code      string    `json:"code"`
	Principal string    `json:"principal"`
	Session   string    `json:"session"`
	Expires   time.Time `json:"expires"`
	Text      string    `json:"text"` // its description, as in a question
}

// waiting returns the calls with these codes that the viewer may approve now.
func (p *Page) waiting(r *http.Request, codes []string) (list []Waiting, err error) {
	if p.Codes == nil {
		return nil, nil
	}
	for _, code := range codes {
		call, err := p.Codes.Find(r.Context(), code, p.Now())
		// The code was answered or has expired since the record was read.
		if errors.Is(err, approval.ErrNoCall) || err == nil && !viewerOf(r.Context()).sees(call.Principal) {
			continue
		} else if err != nil {
			return nil, err
		}
		list = append(list, Waiting{Code: call.Code, Principal: call.Principal, Session: call.Session,
			Expires: call.Expires.UTC(), Text: call.Text})
	}
	return list, nil
}

// approve lets a waiting call run once, in the name of the viewer. Requests of other sites are refused by
// guard; the token in the form proves that it is from this viewer's page.
func (p *Page) approve(w http.ResponseWriter, r *http.Request) {
	v := viewerOf(r.Context())
	r.Body = http.MaxBytesReader(w, r.Body, maxLogin)
	if v.form == "" || subtle.ConstantTimeCompare([]byte(r.PostFormValue("form")), []byte(v.form)) != 1 {
		http.Error(w, "this form is not of your page: open the page of approvals again", http.StatusForbidden)
		return
	}
	if p.Codes == nil {
		http.Error(w, "no calls wait here", http.StatusNotFound)
		return
	}
	if err := p.approveCall(r.Context(), v, r.PathValue("code")); err != nil {
		status, text := p.fault(r, err)
		http.Error(w, text, status)
		return
	}
	http.Redirect(w, r, "/approvals", http.StatusSeeOther)
}

// approveCall approves the call that waits under a code, if the viewer may see it.
//
// Errors: the errors of [approval.Codes].
func (p *Page) approveCall(ctx context.Context, v viewer, code string) error {
	call, err := p.Codes.Find(ctx, code, p.Now())
	if err != nil {
		return err
	}
	if !v.sees(call.Principal) {
		// It is the same error as for an unknown code, so codes of other users cannot be found by trying.
		return approval.ErrNoCall
	}
	return p.Codes.Approve(ctx, call.Code, cmp.Or(v.Name(), p.User)+" on the page", p.Now())
}
