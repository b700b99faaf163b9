package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// A ServerConfig configures a NATS server in this process.
type ServerConfig struct {
	Name string // of the server
	Dir  string // directory for all its data; required
	// Listen is the address for other processes, "host:port". Empty means that only this
	// process can use it.
	Listen string
	// Cluster, Advertise and Routes make it one of three servers. Cluster is the address for
	// the other servers, and Routes are the addresses of all three.
	Cluster, Advertise string
	Routes             []string
	// Token is the secret that other processes and servers must present. Empty means none.
	Token string
	// Logger receives the errors of the server, and its warnings at the level Debug. Nil means no log.
	Logger *slog.Logger
}

// StartServer starts a NATS server with JetStream that syncs every write to disk. The caller
// shuts it down. With Routes, StartServer refuses the data of a server that ran alone: see [StartNode].
func StartServer(cfg ServerConfig) (*server.Server, error) {
	return startServer(cfg, newServerLog(cfg.Logger))
}

// startServer starts a server that reports its errors to log.
func startServer(cfg ServerConfig, log *serverLog) (*server.Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("fleet: ServerConfig.Dir is required")
	}
	opts := &server.Options{
		ServerName: cfg.Name, JetStream: true, StoreDir: cfg.Dir, SyncAlways: true, NoSigs: true, NoLog: true,
		DontListen: cfg.Listen == "", Authorization: cfg.Token, MaxPayload: 1 << 20,
	}
	if err := errors.Join(cfg.setAddresses(opts), cfg.checkAlone()); err != nil {
		return nil, err
	}
	if err := canListen(cfg.Listen, cfg.Cluster); err != nil {
		return nil, err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return nil, fmt.Errorf("fleet: the NATS server cannot be started: %w", err)
	}
	s.SetLogger(log, false, false)
	s.Start()
	if !s.ReadyForConnections(30 * time.Second) {
		s.Shutdown()
		return nil, fmt.Errorf("fleet: the NATS server in %s is not ready after 30s%s", cfg.Dir, log.because())
	}
	if !s.JetStreamEnabled() {
		s.Shutdown()
		return nil, fmt.Errorf("fleet: the NATS server cannot store anything in %s: check that the directory can be written and that the disk has room%s", cfg.Dir, log.because())
	}
	return s, nil
}

// checkAlone returns an error if a server that ran alone would become one of three: NATS would delete its streams. It
// recognizes the data of a server of three by the metadata of its cluster.
func (cfg ServerConfig) checkAlone() error {
	if len(cfg.Routes) == 0 {
		return nil
	}
	dir := os.DirFS(cfg.Dir)
	streams, err := fs.Glob(dir, "jetstream/*/streams/*")
	if err != nil || len(streams) == 0 {
		return err
	}
	if _, err := fs.Stat(dir, "jetstream/$SYS/_js_/_meta_"); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("fleet: %s holds the data of a server that was alone. With routes, NATS would delete it. Use \"parley-fleet up --join\" on the directory of that node, which moves the data to the cluster", cfg.Dir)
	} else if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}

// A serverLog is the log of a server. It keeps the last error.
type serverLog struct {
	logger *slog.Logger
	mu     sync.Mutex
	last   string
}

func newServerLog(l *slog.Logger) *serverLog {
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	return &serverLog{logger: l}
}

// Errorf implements [server.Logger].
func (l *serverLog) Errorf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = fmt.Sprintf(format, v...)
	l.logger.Warn("the NATS server reports an error", "error", l.last)
}

// Fatalf implements [server.Logger].
func (l *serverLog) Fatalf(format string, v ...any) { l.Errorf(format, v...) }

// Noticef implements [server.Logger].
func (*serverLog) Noticef(string, ...any) {}

// Warnf implements [server.Logger].
func (l *serverLog) Warnf(format string, v ...any) {
	l.logger.Debug("the NATS server warns", "warning", fmt.Sprintf(format, v...))
}

// Debugf implements [server.Logger].
func (*serverLog) Debugf(string, ...any) {}

// Tracef implements [server.Logger].
func (*serverLog) Tracef(string, ...any) {}

// because returns the last error in a form that ends a sentence, or "".
func (l *serverLog) because() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.last == "":
		return ""
	case strings.Contains(strings.ToLower(l.last), "auth"):
		return "; the secret in --token-file must be the same on all nodes: " + l.last
	}
	return "; the last error of the NATS server was: " + l.last
}

// ReconnectWait is how long a client should wait before it connects to the same server again. After a second without a
// connection, others take over its sessions.
const ReconnectWait = 100 * time.Millisecond

// Connect connects to a server in this process, without a network.
func Connect(s *server.Server, opts ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("", append([]nats.Option{nats.InProcessServer(s), nats.MaxReconnects(-1), nats.ReconnectWait(ReconnectWait)}, opts...)...)
}
