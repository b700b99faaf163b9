package fleet

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A NodeConfig configures a node with an embedded server.
type NodeConfig struct {
	Name  string // of the node
	Dir   string // directory for all its data; required
	Fleet string // the name of the fleet; empty means "parley"
	// Listen is the address for workers and other programs, "host:port".
	Listen string
	// Cluster is the address for the other nodes, and Join are these addresses of all three
	// nodes, the one with the sessions first. They are stored, so they need to be given only
	// once. Nil means a single node, or the stored addresses.
	Cluster string
	Join    []string
	Token   string // shared by the nodes
	// Logger receives the errors of the server. Nil means no log.
	Logger *slog.Logger
}

// A membership is the stored state of a node of three.
type membership struct {
	Cluster string   `json:"cluster"`
	Routes  []string `json:"routes"`
	// Server is the name of the server. It must be unique and never change, because the servers count each
	// other by name.
	Server string `json:"server,omitempty"`
	// Migrating means that the node's earlier sessions are still in snapshots and not yet in
	// the cluster.
	Migrating bool `json:"migrating,omitempty"`
}

func (n *NodeConfig) path(name string) string { return filepath.Join(n.Dir, name) }

// The files and directories of a node.
const (
	membershipFile = "cluster.json"
	serverDirName  = "nats"            // of the server
	asideDirName   = "nats.standalone" // of the server when the node was alone
	snapshotDir    = "migration"
)

// StartNode starts the server of a node, and returns how many servers store each entry.
//
// A single node becomes one of three through Join. Its streams are written to snapshots, its
// directory is moved aside, and the snapshots are restored in the cluster: a single server
// must never be started with routes, because NATS would delete its streams. If it is killed
// meanwhile, the next StartNode continues; nothing is removed before everything is in the
// cluster. report is called with the progress.
func StartNode(ctx context.Context, cfg NodeConfig, report func(string)) (*server.Server, int, error) {
	if cfg.Dir == "" {
		return nil, 0, errors.New("fleet: NodeConfig.Dir is required")
	}
	if cfg.Fleet == "" {
		cfg.Fleet = "parley"
	}
	m, err := cfg.membership()
	if err != nil {
		return nil, 0, err
	}
	if m == nil && len(cfg.Join) == 0 {
		if cfg.Cluster != "" {
			return nil, 0, fmt.Errorf("fleet: --cluster %s is for one of three nodes: add --join with the addresses of all three", cfg.Cluster)
		}
		s, err := StartServer(ServerConfig{Name: cfg.Name, Dir: cfg.path(serverDirName), Listen: cfg.Listen, Token: cfg.Token, Logger: cfg.Logger})
		return s, 1, err
	}
	if m == nil {
		if m, err = cfg.join(ctx, report); err != nil {
			return nil, 0, err
		}
	}
	if m.Server == "" { // an earlier version used the name of the node
		m.Server = cfg.Name
		if err := cfg.remember(m); err != nil {
			return nil, 0, err
		}
	}
	first := m.Routes[0] == m.Cluster
	if m.Migrating {
		if _, err := os.Stat(cfg.path(asideDirName)); errors.Is(err, fs.ErrNotExist) {
			if err := os.Rename(cfg.path(serverDirName), cfg.path(asideDirName)); err != nil {
				return nil, 0, fmt.Errorf("fleet: %w", err)
			}
		}
	}
	log := newServerLog(cfg.Logger)
	s, err := startServer(ServerConfig{Name: m.Server, Dir: cfg.path(serverDirName), Listen: cfg.Listen, Cluster: m.Cluster, Advertise: m.Cluster, Routes: m.Routes, Token: cfg.Token}, log)
	if err != nil {
		return nil, 0, err
	}
	report("waiting for the other nodes")
	if err := cfg.settle(ctx, s, log, m, first, report); err != nil {
		s.Shutdown()
		return nil, 0, err
	}
	return s, 3, nil
}

// IsMember reports whether the node whose data is in dir is one of three.
func IsMember(dir string) bool {
	n := NodeConfig{Dir: dir}
	_, err := os.Stat(n.path(membershipFile))
	return err == nil
}

// membership returns the stored membership of the node, or nil if it is alone.
func (n *NodeConfig) membership() (*membership, error) {
	data, err := os.ReadFile(n.path(membershipFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := new(membership)
	if err == nil {
		err = json.Unmarshal(data, m)
	}
	if err == nil && len(m.Routes) != 3 {
		err = fmt.Errorf("it has %d routes, want 3", len(m.Routes))
	}
	if err != nil {
		return nil, fmt.Errorf("fleet: %s cannot be read: %w", n.path(membershipFile), err)
	}
	if len(n.Join) > 0 && !slices.Equal(n.Join, m.Routes) || n.Cluster != "" && n.Cluster != m.Cluster {
		return nil, fmt.Errorf("fleet: this node is %s of the cluster %q already, but --cluster is %q and --join %q: remove both flags; to correct an address, edit %s on each node", m.Cluster, m.Routes, n.Cluster, n.Join, n.path(membershipFile))
	}
	return m, nil
}

// join makes the node one of three. If it returns an error, nothing has changed.
func (n *NodeConfig) join(ctx context.Context, report func(string)) (*membership, error) {
	if len(n.Join) != 3 {
		return nil, fmt.Errorf("fleet: a cluster has three nodes, and --join names %d: two have no majority when one is down, so use one or three", len(n.Join))
	}
	for i, a := range n.Join {
		if _, _, err := splitAddress(a); err != nil {
			return nil, err
		}
		if slices.Contains(n.Join[:i], a) {
			return nil, fmt.Errorf("fleet: --join names %s twice", a)
		}
	}
	if !slices.Contains(n.Join, n.Cluster) {
		return nil, fmt.Errorf("fleet: --join %q does not contain this node: --cluster is %q", n.Join, n.Cluster)
	}
	m := &membership{Cluster: n.Cluster, Routes: n.Join, Server: n.Cluster}
	if err := os.MkdirAll(n.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	_, err := os.Stat(n.path(serverDirName))
	if m.Migrating = err == nil; m.Migrating && n.Join[0] != n.Cluster {
		return nil, fmt.Errorf("fleet: %s holds sessions of this node alone. Put it first in --join, or start with an empty directory", n.Dir)
	}
	if err := canListen(n.Listen, n.Cluster); err != nil {
		return nil, err
	}
	if m.Migrating {
		if err := n.snapshotAll(ctx, report); err != nil {
			return nil, err
		}
	}
	return m, n.remember(m)
}

// remember atomically writes the membership.
func (n *NodeConfig) remember(m *membership) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = writeSynced(n.path(membershipFile), func(w io.Writer) error { _, err := w.Write(data); return err })
	}
	if err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	return nil
}

// writeSynced replaces a file. After a crash, the file is complete or unchanged.
func writeSynced(file string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := bufio.NewWriter(f)
	if err := errors.Join(write(w), w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(file))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// migrated returns the streams that move to a cluster. Leases and the entries of workers do not:
// they concern processes that have ended.
func (n *NodeConfig) migrated() []string { return keptStreams(n.Fleet) }

// keptStreams returns the streams of a fleet that hold sessions, in the order for a backup of a running
// fleet: an inbox in it may be newer than its journal but never older, and large entries are stored
// before the journal refers to them.
func keptStreams(fleet string) []string {
	return []string{fleet + "-" + logStream, fleet + "-" + inStream, fleet + "-" + workStream, "OBJ_" + fleet + "-" + blobBucket, "KV_" + fleet + "-" + stateKV}
}

// A streamState is the state that must be the same after a migration.
type streamState struct {
	Messages uint64 `json:"messages"`
	FirstSeq uint64 `json:"first_seq"`
	LastSeq  uint64 `json:"last_seq"`
	Subjects int    `json:"num_subjects"`
}

// same reports whether two streams have the same content. It ignores the first sequence of an empty stream, which
// is 0 or that of the next message.
func (s streamState) same(o streamState) bool {
	if s.Messages == 0 {
		s.FirstSeq, o.FirstSeq = 0, 0
	}
	return s == o
}

// A streamFile describes a snapshot. It is stored in a file next to it.
type streamFile struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
}

// snapshotAll writes the streams of a single node to files.
func (n *NodeConfig) snapshotAll(ctx context.Context, report func(string)) error {
	s, err := StartServer(ServerConfig{Name: n.Name, Dir: n.path(serverDirName)})
	if err != nil {
		return err
	}
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	nc, err := Connect(s)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := errors.Join(os.RemoveAll(n.path(snapshotDir)), os.MkdirAll(n.path(snapshotDir), 0o700)); err != nil {
		return fmt.Errorf("fleet: %w", err)
	}
	if err := writeSnapshots(ctx, nc, n.migrated(), n.path(snapshotDir), report); err != nil {
		return fmt.Errorf("%w; nothing has changed", err)
	}
	return nil
}

// writeSnapshots writes streams to files of a directory, in this order.
func writeSnapshots(ctx context.Context, nc *nats.Conn, streams []string, dir string, report func(string)) error {
	for _, stream := range streams {
		report("writing a snapshot of " + stream)
		file := filepath.Join(dir, stream)
		var about *streamFile
		err := writeSynced(file, func(w io.Writer) (err error) {
			about, err = snapshot(ctx, nc, stream, w)
			return err
		})
		if err == nil && about == nil {
			err = os.Remove(file) // the stream does not exist
		} else if err == nil {
			var data []byte
			if data, err = json.Marshal(about); err == nil {
				err = writeSynced(file+".json", func(w io.Writer) error { _, err := w.Write(data); return err })
			}
		}
		if err != nil {
			return fmt.Errorf("fleet: the snapshot of %s failed: %w", stream, err)
		}
	}
	return nil
}

// snapshotTime is how long the server may be silent during a snapshot or a restore.
const snapshotTime = 30 * time.Second

// snapshot writes a stream to w. It returns nil if the stream does not exist.
func snapshot(ctx context.Context, nc *nats.Conn, stream string, w io.Writer) (*streamFile, error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer sub.Unsubscribe()
	sub.SetPendingLimits(-1, -1)
	var resp struct {
		streamFile
		Error *apiError `json:"error"`
	}
	if err := ask(ctx, nc, "$JS.API.STREAM.SNAPSHOT."+stream, map[string]any{"deliver_subject": inbox, "no_consumers": true, "jsck": true}, &resp); err != nil {
		return nil, err
	}
	if resp.Error != nil {
		if resp.Error.Code == 404 {
			return nil, nil
		}
		return nil, resp.Error
	}
	for {
		try, cancel := context.WithTimeout(ctx, snapshotTime)
		m, err := sub.NextMsgWithContext(try)
		cancel()
		if err != nil {
			return nil, err
		}
		if len(m.Data) == 0 {
			if status := m.Header.Get("Status"); status != "" && status != "204" {
				return nil, fmt.Errorf("%s %s", status, m.Header.Get("Description"))
			}
			return &resp.streamFile, nil
		}
		if _, err := w.Write(m.Data); err != nil {
			return nil, err
		}
		if m.Reply != "" {
			m.Respond(nil)
		}
	}
}

// ask sends a request to the API and decodes the answer.
func ask(ctx context.Context, nc *nats.Conn, subject string, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return err
	}
	try, cancel := context.WithTimeout(ctx, snapshotTime)
	defer cancel()
	m, err := nc.RequestWithContext(try, subject, data)
	if err != nil {
		return err
	}
	return json.Unmarshal(m.Data, out)
}

// settle makes a node of three usable: the first node restores its data, and the others wait
// until it has.
func (n *NodeConfig) settle(ctx context.Context, s *server.Server, log *serverLog, m *membership, first bool, report func(string)) error {
	nc, err := Connect(s, nats.Token(n.Token))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ready := n.Fleet + "-ready"
	began, most := time.Now(), waitTime
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := n.settleOnce(ctx, nc, js, m, first, ready, report)
		if err == nil || errors.Is(err, errRestore) {
			return err
		}
		if time.Since(began) > most {
			report(fmt.Sprintf("still waiting: %d of the other 2 nodes are connected%s", s.NumRemotes(), log.because()))
			most *= 2
		}
		if sleep(ctx, wait) != nil {
			return fmt.Errorf("fleet: the cluster is not ready: %w (the last error was: %w)", context.Cause(ctx), err)
		}
	}
}

// waitTime is how long a node waits for the others before it reports what is wrong.
const waitTime = 4 * time.Second

// errRestore marks errors that a retry does not fix.
var errRestore = errors.New("fleet: the sessions could not be restored")

// settleOnce makes one attempt. It fails while there is no majority.
func (n *NodeConfig) settleOnce(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, m *membership, first bool, ready string, report func(string)) error {
	try, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := js.Stream(try, ready); err == nil && !m.Migrating {
		return nil
	} else if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	} else if !first {
		return errors.New("the first node has not created the streams yet")
	}
	if m.Migrating {
		for _, stream := range n.migrated() {
			if err := restoreStream(ctx, nc, js, n.path(snapshotDir), stream, 3, report); err != nil {
				return fmt.Errorf("%w; the earlier data is in %s", err, n.path(asideDirName))
			}
		}
	}
	try, cancel = context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := js.CreateOrUpdateStream(try, jetstream.StreamConfig{Name: ready, Subjects: []string{n.Fleet + ".ready"}, Replicas: 3}); err != nil {
		return err
	}
	if m.Migrating {
		m.Migrating = false
		if err := n.remember(m); err != nil {
			return errors.Join(errRestore, err)
		}
		report("the sessions are in the cluster; " + n.path(asideDirName) + " and " + n.path(snapshotDir) + " can be removed")
	}
	return nil
}

// restoreStream restores a stream from its snapshot in a directory, unless it exists, and compares
// it.
func restoreStream(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, dir, stream string, replicas int, report func(string)) error {
	file := filepath.Join(dir, stream)
	data, err := os.ReadFile(file + ".json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the stream did not exist
	}
	var about streamFile
	var want streamState
	var config map[string]any
	if err == nil {
		err = json.Unmarshal(data, &about)
	}
	if err == nil {
		err = errors.Join(json.Unmarshal(about.State, &want), json.Unmarshal(about.Config, &config))
	}
	if err != nil {
		return errors.Join(errRestore, err)
	}
	if got, err := stateOf(ctx, nc, stream); err != nil {
		return err
	} else if got != nil && got.same(want) {
		return nil
	} else if got != nil { // a restore was interrupted, and the stream was not used
		if err := js.DeleteStream(ctx, stream); err != nil {
			return err
		}
	}
	report("restoring " + stream)
	f, err := os.Open(file)
	if err != nil {
		return errors.Join(errRestore, err)
	}
	defer f.Close()
	config["num_replicas"] = replicas
	config["compression"] = "none" // see uncompress
	var resp struct {
		Deliver string    `json:"deliver_subject"`
		Error   *apiError `json:"error"`
	}
	if err := ask(ctx, nc, "$JS.API.STREAM.RESTORE."+stream, map[string]any{"config": config, "state": about.State}, &resp); err != nil {
		return err
	}
	if resp.Error != nil {
		return resp.Error
	}
	chunk := make([]byte, 128<<10)
	for end := false; !end; {
		k, err := io.ReadFull(f, chunk)
		if end = errors.Is(err, io.EOF); err != nil && !end && !errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.Join(errRestore, err)
		}
		try, cancel := context.WithTimeout(ctx, snapshotTime)
		m, err := nc.RequestWithContext(try, resp.Deliver, chunk[:k])
		cancel()
		if err != nil {
			return err
		}
		var answer struct {
			Error *apiError `json:"error"`
		}
		if len(m.Data) > 0 && json.Unmarshal(m.Data, &answer) == nil && answer.Error != nil {
			return answer.Error
		}
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		got, err := stateOf(ctx, nc, stream)
		if err == nil && got != nil && got.same(want) {
			return nil
		}
		if err == nil && got != nil && wait == time.Second {
			return fmt.Errorf("%w: %s has %+v, want %+v", errRestore, stream, *got, want)
		}
		if sleep(ctx, wait) != nil {
			return context.Cause(ctx)
		}
	}
}

// stateOf returns the state of a stream, or nil if it does not exist.
func stateOf(ctx context.Context, nc *nats.Conn, stream string) (*streamState, error) {
	var resp struct {
		State streamState `json:"state"`
		Error *apiError   `json:"error"`
	}
	if err := ask(ctx, nc, "$JS.API.STREAM.INFO."+stream, struct{}{}, &resp); err != nil {
		return nil, err
	}
	if resp.Error != nil {
		if resp.Error.Code == 404 {
			return nil, nil
		}
		return nil, resp.Error
	}
	return &resp.State, nil
}
