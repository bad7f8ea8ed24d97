package making

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"

	"github.com/skillsd/skillsd/sandbox/egress"
	"github.com/skillsd/skillsd/sandbox/environment"
)

// fetchers is how many packages are fetched at the same time.
const fetchers = 4

// fetch fetches the packages of a lock that the store does not have.
func (m *Maker) fetch(ctx context.Context, locked *environment.Locked) error {
	var python, node []*environment.Package
	if locked.Python != nil {
		python = m.missing(locked.Python.Packages)
	}
	if locked.Node != nil {
		node = m.missing(locked.Node.Packages)
	}
	if err := m.fetchFrom(ctx, m.Python, PyPI, python); err != nil {
		return err
	}
	return m.fetchFrom(ctx, m.Node, NPM, node)
}

func (m *Maker) missing(packages []environment.Package) (missing []*environment.Package) {
	for i := range packages {
		file, size, err := m.open(&packages[i])
		if err != nil {
			missing = append(missing, &packages[i])
			continue
		}
		packages[i].Size = size
		file.Close()
	}
	return missing
}

// open returns the stored file of a package, after it compared the digest with the lock.
func (m *Maker) open(p *environment.Package) (environment.Archive, int64, error) {
	algorithm, want := p.Sum()
	file := m.Store.Download(algorithm, want)
	if file == nil {
		return nil, 0, os.ErrNotExist
	}
	sum := newHash(algorithm)
	size, err := io.Copy(sum, file)
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	if hex.EncodeToString(sum.Sum(nil)) != want {
		err = errors.New("the kept file changed")
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	_, err = file.Seek(0, io.SeekStart)
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, size, nil
}

func newHash(algorithm string) hash.Hash {
	if algorithm == "sha512" {
		return sha512.New()
	}
	return sha256.New()
}

// fetchFrom fetches packages from the hosts of an index only.
func (m *Maker) fetchFrom(ctx context.Context, index, otherwise string,
	packages []*environment.Package) error {
	if len(packages) == 0 {
		return nil
	}
	proxy, _, err := reach(cmp.Or(index, otherwise), index != "", 64<<30)
	if err != nil {
		return err
	}
	m.report("fetching %s", packagesOf(len(packages), ""))
	client, closeClient := newClient(ctx, proxy)
	defer closeClient()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var work sync.WaitGroup
	queue := make(chan *environment.Package)
	failures := make(chan error, fetchers)
	for range fetchers {
		work.Go(func() {
			for p := range queue {
				if err := m.fetchOne(ctx, client, proxy, p); err != nil {
					failures <- err
					stop()
					return
				}
			}
		})
	}
	for _, p := range packages {
		select {
		case queue <- p:
			continue
		// A fetcher that failed has ended this context, and receives nothing more.
		case <-ctx.Done():
		}
		break
	}
	close(queue)
	work.Wait()
	close(failures)
	if err := <-failures; err != nil {
		return err
	}
	return ctx.Err()
}

// fetchOne fetches a package and stores it if it has the digest in the lock.
func (m *Maker) fetchOne(
	ctx context.Context, client *http.Client, proxy *egress.Proxy, p *environment.Package,
) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "skillsd")
	refused := func(what string) error {
		return &Error{Code: IndexRefused, Message: fmt.Sprintf("package %s cannot be fetched from %s: %s",
			p.Name, request.URL.Host, what),
			Remedy: "see whether the index is reachable, and whether it serves its files itself"}
	}
	response, err := client.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		// The client's error is only that the proxy refused, and the proxy has the reason.
		if refusal := unreachable(proxy); refusal != nil {
			return refusal
		}
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return refused(err.Error())
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		if refusal := unreachable(proxy); refusal != nil {
			return refusal
		}
		return refused(response.Status)
	}
	algorithm, want := p.Sum()
	body := &checked{r: io.LimitReader(response.Body, maxPackage+1), sum: newHash(algorithm), want: want}
	err = m.Store.Keep(algorithm, want, body)
	if errors.Is(err, errOther) {
		return &Error{Code: HashMismatch, Err: err, Message: fmt.Sprintf(
			"%s serves other bytes of %s %s than the lock says",
			request.URL.Host, p.Name, p.Version), Remedy: "do not use this package before it is known why"}
	}
	p.Size = body.size
	return err
}

// maxPackage is the size of the largest package that is fetched, in bytes.
const maxPackage = 1 << 30

var errOther = errors.New("the content does not have its digest")

// checked is a reader that fails if its content is too long, or at its end does not have a digest.
type checked struct {
	r    io.Reader
	sum  hash.Hash
	want string
	size int64
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.sum.Write(p[:n])
	c.size += int64(n)
	if c.size > maxPackage || err == io.EOF && hex.EncodeToString(c.sum.Sum(nil)) != c.want {
		return n, errOther
	}
	return n, err
}

// newClient returns a client that reaches only what the proxy does, also after redirects: the same kind of
// proxy as for scripts in a sandbox.
func newClient(ctx context.Context, proxy *egress.Proxy) (*http.Client, func()) {
	ctx, stop := context.WithCancel(ctx)
	l := &memory{conns: make(chan net.Conn), done: ctx.Done()}
	var served sync.WaitGroup
	served.Go(func() { proxy.Serve(ctx, l) })
	transport := &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy"}), DialContext: l.dial,
		MaxIdleConnsPerHost: fetchers, DisableCompression: true,
	}
	return &http.Client{Transport: transport}, func() {
		transport.CloseIdleConnections()
		stop()
		served.Wait()
	}
}

// memory is a listener with pipes as connections.
type memory struct {
	conns chan net.Conn
	done  <-chan struct{}
}

func (l *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memory) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memory) Close() error { return nil }

func (l *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }
