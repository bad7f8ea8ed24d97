package e2e

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/skillsd/skillsd/e2e/nightly"
	"github.com/skillsd/skillsd/provenance/jetstream/clustertest"
	"github.com/skillsd/skillsd/sandbox/sandboxtest"
)

// deployment is what compose.yaml and the kinds in kubernetes.yaml say that the tests below look at.
type deployment struct {
	Services map[string]*container
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     struct {
		Replicas int
		Ingress  []struct {
			From  []map[string]map[string]map[string]string
			Ports []struct{ Port string }
		}
		Template struct {
			Spec struct {
				SecurityContext              map[string]any `yaml:"securityContext"`
				AutomountServiceAccountToken *bool          `yaml:"automountServiceAccountToken"`
				Containers                   []*container
				Volumes                      []map[string]any
			}
		}
	}
}

// container is one of either.
type container struct {
	Image       string
	Environment map[string]string // of compose
	Env         []struct{ Name, Value string }
	Command     []string // of compose: arguments
	Args        []string
	Volumes     []string

	User            string
	ReadOnly        bool           `yaml:"read_only"`
	CapDrop         []string       `yaml:"cap_drop"`
	SecurityOpt     []string       `yaml:"security_opt"`
	SecurityContext map[string]any `yaml:"securityContext"`
	ReadinessProbe  struct {
		HTTPGet struct{ Path string } `yaml:"httpGet"`
	} `yaml:"readinessProbe"`
	Healthcheck  struct{ Test any }
	VolumeMounts []mount `yaml:"volumeMounts"`
}

type mount struct {
	MountPath string `yaml:"mountPath"`
}

// deployedCluster returns a file of cmd/skillsd/deploy/cluster.
func deployedCluster(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "cmd", "skillsd", "deploy", "cluster", name))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

var pinnedImage = regexp.MustCompile(`^[a-z.]+/[a-z/]+(:[0-9][0-9.]*(-alpine)?|@sha256:[0-9a-f]{64})$`)

// wants holds one container to what all of them have: an image of one version, a command line and variables
// that the program knows, and no more rights than it needs.
func (c *container) wants(t *testing.T, name string) {
	t.Helper()
	own := strings.HasSuffix(c.Image, "/skillsd:cluster")
	if !own && !pinnedImage.MatchString(c.Image) {
		t.Errorf("%s: the image %s is not one version", name, c.Image)
	}
	hardened := c.ReadOnly && slices.Equal(c.CapDrop, []string{"ALL"}) && c.User == "65532:65532" &&
		slices.Contains(c.SecurityOpt, "no-new-privileges:true")
	if got := c.SecurityContext; got != nil {
		dropped, _ := got["capabilities"].(map[string]any)
		all, _ := dropped["drop"].([]any)
		hardened = got["readOnlyRootFilesystem"] == true && got["allowPrivilegeEscalation"] == false && len(all) == 1 && all[0] == "ALL"
	}
	if !hardened {
		t.Errorf("%s can write its root file system, or has rights that it does not need", name)
	}
	if !own {
		return
	}
	args, env := slices.Concat(c.Command, c.Args), maps.Clone(c.Environment)
	if env == nil {
		env = map[string]string{}
	}
	for _, v := range c.Env {
		env[v.Name] = v.Value
	}
	help := skillsd(t, 0, append(slices.Clone(args), "--help")...)
	for variable := range env {
		flag, ours := strings.CutPrefix(variable, "SKILLSD_")
		flag = "--" + strings.ToLower(strings.ReplaceAll(flag, "_", "-"))
		takes := func(inManual string) bool { return inManual == flag || strings.HasPrefix(inManual, flag+"=") }
		inHelp := strings.Contains(help, flag+" ")
		if ours && !inHelp && !slices.ContainsFunc(manFlags(t)["skillsd-"+args[0]], takes) {
			t.Errorf("%s: no flag of skillsd %s takes %s", name, args[0], variable)
		}
	}
	for _, arg := range args {
		if !strings.HasPrefix(arg, "/run/secrets/") {
			continue
		}
		mounted := slices.ContainsFunc(c.Volumes, func(v string) bool { return strings.HasSuffix(v, ":"+arg+":ro") }) ||
			slices.ContainsFunc(c.VolumeMounts, func(v mount) bool { return v.MountPath == "/run/secrets" })
		if !mounted {
			t.Errorf("%s: nothing mounts %s", name, arg)
		}
	}
	if args[0] == "serve" && c.ReadinessProbe.HTTPGet.Path != "/readyz" && c.Healthcheck.Test == nil {
		t.Errorf("%s has no probe", name)
	}
}

// TestCompose holds the compose file of a cluster to the program.
func TestCompose(t *testing.T) {
	t.Parallel()
	var d deployment
	if err := yaml.Unmarshal(deployedCluster(t, "compose.yaml"), &d); err != nil {
		t.Fatal(err)
	}
	want := []string{"front-1", "front-2", "nats-0", "nats-1", "nats-2", "proxy", "worker-1", "worker-2"}
	if got := slices.Sorted(maps.Keys(d.Services)); !slices.Equal(got, want) {
		t.Errorf("the services are %q", got)
	}
	for name, c := range d.Services {
		c.wants(t, name)
	}
	for _, backend := range []string{"front-1", "front-2"} {
		if !strings.Contains(string(deployedCluster(t, "haproxy.cfg")), "server "+backend+" "+backend+":8443") {
			t.Errorf("the proxy does not know %s", backend)
		}
	}
}

// startDeployed starts a server of NATS with text, which is of nats.conf, and certificates of certify. It returns
// where those are, and where clients and other servers reach it.
func startDeployed(t *testing.T, text string) (secrets, clients, servers string) {
	t.Helper()
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is missing")
	}
	dir := t.TempDir()
	secrets = filepath.Join(dir, "secrets")
	certify, err := filepath.Abs(filepath.Join("..", "cmd", "skillsd", "deploy", "cluster", "certify"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(certify, secrets, "skills.example.com").CombinedOutput(); err != nil {
		t.Fatalf("certify: %v\n%s", err, out)
	}
	text = strings.NewReplacer("0.0.0.0:4222", "127.0.0.1:-1", "0.0.0.0:6222", "127.0.0.1:-1", "http: 0.0.0.0:8222", "",
		"/data", dir+"/data", "/run/secrets", secrets, "$NATS_NAME", "nats-0").Replace(text)
	conf := filepath.Join(dir, "nats.conf")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	clients, servers = clustertest.StartConfigured(t, conf)
	return secrets, clients, servers
}

// trusting returns what a client of the server name needs that trusts the authority of certify.
func trusting(t *testing.T, secrets, name string) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(secrets, "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	return &tls.Config{RootCAs: roots, ServerName: name}
}

// Other servers obey no permissions, so a server of NATS takes nobody for one but who has their certificate.
func TestClusterDeployedRoutes(t *testing.T) {
	t.Parallel()
	secrets, _, servers := startDeployed(t, string(deployedCluster(t, "nats.conf")))
	const refused = "-ERR 'Authorization Violation'"
	for who, want := range map[string]string{"nats": "PONG", "server": refused, "worker": refused} {
		config := trusting(t, secrets, "nats-0")
		pair, err := tls.LoadX509KeyPair(filepath.Join(secrets, who+".pem"), filepath.Join(secrets, who+".key"))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
		conn, err := tls.Dial("tcp", servers, config)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience)) // reading fails if that does
		if _, err := io.WriteString(conn, "CONNECT {\"cluster\": \"skillsd\", \"name\": \"fourth\"}\r\nPING\r\n"); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(conn)
		for lines.Scan() && strings.HasPrefix(lines.Text(), "INFO ") {
		}
		if got := lines.Text(); got != want {
			t.Errorf("a server with %s.pem gets %q (%v), want %q", who, got, lines.Err(), want)
		}
		conn.Close()
	}
}

// What the files of a deployment say works together: certificates as certify makes them, the users of NATS and
// what they may do, the command lines of a server and a worker.
func TestClusterDeployed(t *testing.T) {
	nightly.Only(t)
	t.Parallel() // what is refused takes a while
	sandboxtest.Need(t, "userns", "bash")
	config := filepath.Join(t.TempDir(), "config.yaml")
	alone, _, _ := strings.Cut(string(deployedCluster(t, "nats.conf")), "\ncluster {")
	secrets, clients, _ := startDeployed(t, alone)
	at, err := url.Parse(clients)
	if err != nil {
		t.Fatal(err)
	}
	server := "tls://localhost:" + at.Port() // the name that its certificate has
	skills := tree(t, demoSkill())
	pinned(t, config, "", []string{"--skills-root", "org=" + skills}, "demo:scripts/ok.sh")
	var d deployment
	if err := yaml.Unmarshal(deployedCluster(t, "compose.yaml"), &d); err != nil {
		t.Fatal(err)
	}
	command := func(service string, more ...string) []string {
		var args []string
		for _, arg := range slices.Concat(d.Services[service].Command, more) {
			if strings.HasPrefix(arg, "tls://nats-") {
				arg = server
			}
			args = append(args, strings.NewReplacer("/run/secrets", secrets, "/srv/skills", skills, "0.0.0.0:8443", "127.0.0.1:0").Replace(arg))
		}
		return append(args, "--config", config, "--release", "observed", "--state", t.TempDir())
	}
	worker := start(t, exec.Command(binary, command("worker-1")...))
	front := &site{process: start(t, exec.Command(binary, command("front-1", "--cluster-replicas", "1", "--prompt-slot-role", "direct-command")...))}
	front.client = &http.Client{Transport: &http.Transport{TLSClientConfig: trusting(t, secrets, "skills.example.com")}, Timeout: patience}
	t.Cleanup(front.client.CloseIdleConnections)
	front.url = "https://" + front.addr() + "/mcp"
	token, err := os.ReadFile(filepath.Join(secrets, "token"))
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(soon); !strings.Contains(worker.stderr.String(), "worker ready"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the worker is not ready")
		}
	}
	f := &fronts{caller: front.as(string(token))}
	f.handle = f.load(f.caller)
	result, _ := f.run(f.caller, "deployed", "")
	if !strings.Contains(result.text(), "ran-ok deployed") {
		t.Errorf("not run: %s", result.text())
	}
	// A worker cannot read records, as it may not ask for streams.
	list := exec.Command(binary, "session", "list", "--cluster", server, "--cluster-ca", secrets+"/ca.pem",
		"--cluster-cert", secrets+"/server.pem", "--cluster-cert-key", secrets+"/server.key", "--cluster-replicas", "1")
	if out, err := list.CombinedOutput(); err != nil || !strings.Contains(string(out), "ses_") {
		t.Errorf("records by the certificate of a server: %v\n%s", err, out)
	}
	for i, arg := range list.Args {
		list.Args[i] = strings.Replace(arg, "/server.", "/worker.", 1)
	}
	list = exec.Command(binary, list.Args[1:]...)
	if out, err := list.CombinedOutput(); err == nil {
		t.Errorf("records by the certificate of a worker:\n%s", out)
	}
}

// TestKubernetes holds the manifest of a cluster to the program, its nats.conf to that of the compose file, and
// the port of NATS for its servers to them.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	replicas := map[string]int{}
	for decoder := yaml.NewDecoder(bytes.NewReader(deployedCluster(t, "kubernetes.yaml"))); ; {
		var d deployment
		if err := decoder.Decode(&d); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for _, rule := range d.Spec.Ingress {
			for _, p := range rule.Ports {
				if p.Port == "cluster" && (len(rule.From) != 1 || rule.From[0]["podSelector"]["matchLabels"]["app"] != "nats") {
					t.Errorf("others than servers of NATS reach %s as one: %v", d.Metadata.Name, rule.From)
				}
			}
		}
		pod := d.Spec.Template.Spec
		if conf, ok := d.Data["nats.conf"]; ok {
			conf = strings.NewReplacer("nats-0.nats:", "nats-0:", "nats-1.nats:", "nats-1:", "nats-2.nats:", "nats-2:").Replace(conf)
			if want := string(deployedCluster(t, "nats.conf")); conf != want {
				t.Errorf("nats.conf is not that of the compose file:\n%s", conf)
			}
		}
		if len(pod.Containers) == 0 {
			continue
		}
		replicas[d.Metadata.Name] = d.Spec.Replicas
		if pod.SecurityContext["runAsNonRoot"] != true || pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
			t.Errorf("%s runs as root, or has a token of Kubernetes", d.Metadata.Name)
		}
		for _, c := range pod.Containers {
			c.wants(t, d.Metadata.Name)
		}
	}
	if want := map[string]int{"nats": 3, "skillsd": 2, "worker": 2}; !maps.Equal(replicas, want) {
		t.Errorf("replicas are %v, want %v", replicas, want)
	}
}
