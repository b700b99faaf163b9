package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/internal/testwait"
	"github.com/parley-go/parley/serve"
)

// TestSocketActivation checks that a socket that the service manager opened is served,
// that its address is printed with the first token, and
// that the numbers of the server reach a collector of OpenTelemetry.
func TestSocketActivation(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it needs a shell")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + l.Addr().String()
	file, err := l.(*net.TCPListener).File()
	l.Close()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.CommandContext(testwait.Context(t), "sh", "-c", "LISTEN_PID=$$ LISTEN_FDS=1 exec parley serve")
	got := newCollector(t)
	server.Env = append(os.Environ(), "CLAUDE_CONFIG_DIR="+t.TempDir(), "OTEL_EXPORTER_OTLP_ENDPOINT="+got.URL)
	server.ExtraFiles = []*os.File{file}
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	printed := ""
	for !strings.Contains(printed, "#t=") && lines.Scan() {
		printed += lines.Text() + "\n"
	}
	if !strings.HasPrefix(printed, "Serving "+url+"\n"+url+"/#t=") {
		t.Errorf("it printed %q", printed)
	}
	resp, err := http.Get(url + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != 200 {
		t.Errorf("health: %s", resp.Status)
	}
	server.Process.Signal(syscall.SIGTERM)
	io.Copy(io.Discard, out)
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
	for _, want := range []string{`"parley.sessions"`, `"key":"phase"`, `"parley.requests"`, `"isMonotonic":true`, `"asInt":"1"`} {
		if b := got.sent["/v1/metrics"]; b == nil || !strings.Contains(b.String(), want) {
			t.Errorf("the collector did not receive %s: %v", want, b)
		}
	}
}

// TestApproveFromAPhone serves the demo. The shell of docs/serve.md approves its edit
// with a token that allows nothing more, the turn ends, and SIGTERM ends the server in
// time.
func TestApproveFromAPhone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it needs a shell")
	}
	for _, name := range []string{"curl", "jq", "sh"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	script := ""
	for _, b := range blocks(t, filepath.Join("..", "..", "docs", "serve.md")) {
		if strings.Contains(b.info, "TestApproveFromAPhone") {
			script = b.code
		}
	}
	if n := strings.Count(script, "\n"); n == 0 || n > 10 {
		t.Fatalf("docs/serve.md approves in %d lines", n)
	}
	path := filepath.Join(t.TempDir(), "parley")
	build(t, path)
	server := exec.Command(path, "serve", "--demo")
	server.Env = append(os.Environ(), "HOME="+t.TempDir())
	var errs bytes.Buffer // complete once the server has ended
	server.Stderr = &errs
	out, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	t.Cleanup(func() { server.Process.Kill(); <-ended })
	lines := bufio.NewScanner(out)
	url, admin := "", ""
	for admin == "" && lines.Scan() {
		if m := regexp.MustCompile(`^(http://\S+)/#t=(\S+)$`).FindStringSubmatch(lines.Text()); m != nil {
			url, admin = m[1], m[2]
		}
	}
	go func() {
		io.Copy(io.Discard, out)
		ended <- server.Wait()
		close(ended)
	}()
	call := func(method, path, body string) string {
		t.Helper()
		req, err := http.NewRequest(method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+admin)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 200 {
			t.Fatalf("%s %s: %s %s", method, path, resp.Status, data)
		}
		return string(data)
	}
	defer http.DefaultClient.CloseIdleConnections()
	var made struct{ Secret string }
	decode(t, call("POST", "/v1/tokens", `{"name":"phone","scope":"approve"}`), &made)
	phone := exec.Command("sh", "-eu", "-c", script)
	phone.Env = append(os.Environ(), "URL="+url, "TOKEN="+made.Secret)
	phone.Stdin = strings.NewReader("y\n")
	shown, err := phone.CombinedOutput()
	if err != nil || !strings.Contains(string(shown), "split.sh") || !strings.Contains(string(shown), "+echo") && !strings.Contains(string(shown), "+\techo") && !strings.Contains(string(shown), "($1 + $2 - 1)") {
		t.Fatalf("%v: %s", err, shown)
	}
	id := ""
	testwait.Until(t, "the demo has its sessions, and the load test runs", func() bool {
		var list serve.SessionList
		decode(t, call("GET", "/v1/sessions", ""), &list)
		phases := map[string]hub.Phase{}
		for _, s := range list.Sessions {
			phases[s.State.Title] = s.State.Phase
			if s.State.Title == "Demo" {
				id = s.ID
			}
		}
		return len(phases) == len(demoSessions) && phases["Load test"] == hub.Running
	})
	req, err := http.NewRequest("GET", url+"/v1/sessions/"+id+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+made.Secret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	events.Buffer(nil, 1<<24)
	for events.Scan() && !strings.Contains(events.Text(), `"type":"result"`) {
	}
	if !strings.Contains(events.Text(), `"subtype":"success"`) {
		t.Errorf("the turn ended with %s", events.Text())
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if errs.Len() > 0 { // it waited for turns, or failed
		t.Errorf("it wrote %s", &errs)
	}
}

func decode(t *testing.T, data string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(data), v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// TestServeRefusesPublicAddresses checks that a server that others can reach encrypts, or
// does not start.
func TestServeRefusesPublicAddresses(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0", "example.com:0"} {
		var stderr strings.Builder
		p := &process{stdin: strings.NewReader(""), stdout: io.Discard, stderr: &stderr, env: []string{"HOME=" + t.TempDir()}}
		if status := run(t.Context(), p, []string{"serve", "--addr", addr}); status != exitUsage || !strings.Contains(stderr.String(), "--behind-proxy") {
			t.Errorf("--addr %s: status %d, %s", addr, status, &stderr)
		}
	}
}

// TestServeEncrypts checks that the server encrypts with a certificate of the user, and
// uses a renewed one without a restart.
func TestServeEncrypts(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	serial := func(n int64) *x509.CertPool {
		t.Helper()
		private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{SerialNumber: big.NewInt(n), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
		if err != nil {
			t.Fatal(err)
		}
		pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
		if err != nil {
			t.Fatal(err)
		}
		for name, block := range map[string]*pem.Block{key: {Type: "PRIVATE KEY", Bytes: pkcs8}, cert: {Type: "CERTIFICATE", Bytes: der}} {
			if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(cert, time.Time{}, time.Unix(n, 0)); err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AddCert(parsed)
		return pool
	}
	pool := serial(1)
	out, w := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{stdin: strings.NewReader(""), stdout: w, stderr: io.Discard, env: []string{"CLAUDE_CONFIG_DIR=" + dir}}
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, p, []string{"serve", "--addr", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key})
		w.Close()
	}()
	lines := bufio.NewScanner(out)
	var link []string
	for link == nil && lines.Scan() {
		link = regexp.MustCompile(`^(https://\S+)/#t=(\S+)$`).FindStringSubmatch(lines.Text())
	}
	if link == nil {
		t.Fatal("no link was printed")
	}
	go io.Copy(io.Discard, out)
	defer func() { cancel(); <-ended }()
	get := func(pool *x509.CertPool) (int64, error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
		defer client.CloseIdleConnections()
		req, err := http.NewRequest("GET", link[1]+"/v1/me", nil)
		if err != nil {
			return 0, err
		}
		req.Header.Set("Authorization", "Bearer "+link[2])
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if resp.StatusCode != 200 || resp.ProtoMajor != 2 {
			t.Errorf("%s %s", resp.Proto, resp.Status)
		}
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64(), nil
	}
	if n, err := get(pool); n != 1 || err != nil {
		t.Errorf("certificate %d, %v", n, err)
	}
	if n, err := get(serial(2)); n != 2 || err != nil {
		t.Errorf("the renewed certificate is %d, %v", n, err)
	}
	// An unreadable certificate does not end what works.
	if err := os.WriteFile(cert, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	var unknown *tls.CertificateVerificationError
	if _, err := get(pool); !errors.As(err, &unknown) {
		t.Errorf("with an unreadable certificate: %v", err)
	}
}
