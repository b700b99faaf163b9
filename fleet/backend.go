package fleet

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/parley-go/parley/hub"
	group "github.com/parley-go/parley/internal/gate" // a worker has a gate of its own
	"github.com/parley-go/parley/session"
)

// A Config configures a [Backend].
type Config struct {
	// Conn is the connection to NATS. It is required. The backend does not close it.
	Conn *nats.Conn
	// Name is the prefix of all subjects and streams, so that fleets can share a cluster.
	// It consists of lower-case letters and digits. Empty means "parley".
	Name string
	// Replicas is how many servers store each entry: 1 or 3. Zero means 3 if the server is one
	// of a cluster, and 1 if it is alone. It applies when the streams are created.
	Replicas int
	// Lease is how long an unresponsive process keeps its sessions. Zero means 30
	// seconds. It applies when the streams are created.
	Lease time.Duration
	// MustExist makes Open fail if there is no fleet of that name, instead of creating
	// it.
	MustExist bool
	// Worker is the name of this process, for people. Empty means its id.
	Worker string
}

// Backend is a [hub.Backend] on NATS JetStream. Each Backend counts as a separate
// process. Close it to release its leases.
type Backend struct {
	cfg   Config
	nc    *nats.Conn
	js    jetstream.JetStream
	id    string // of this process
	blobs jetstream.ObjectStore
	// leases holds the process of each session; workers, whose entries expire, holds the
	// live processes.
	leases, workers jetstream.KeyValue
	state           jetstream.KeyValue // see stateKV

	mu    sync.Mutex
	tails map[string]tail // the ends of logs that this process has seen
	began map[string]*hub.Created
	index *index // of all sessions; nil until it is needed

	beat    beat
	metrics Metrics

	link atomic.Int64 // the round trip to the server in nanoseconds; 0 until the link was too slow

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	work group.Gate
}

var (
	_ hub.Backend = (*Backend)(nil)
	_ hub.Rester  = (*Backend)(nil)
)

// Metrics count events since a backend was opened.
type Metrics struct {
	Appends   atomic.Int64 // messages stored in a log
	Fenced    atomic.Int64 // appends that failed because another process owns the session
	Retries   atomic.Int64 // repeated publishes: no leader, no answer, or one in flight
	Takeovers atomic.Int64 // leases taken from a process that had died or was unresponsive
}

// Metrics returns the counters of the backend.
func (b *Backend) Metrics() *Metrics { return &b.metrics }

// validName matches names of fleets.
var validName = regexp.MustCompile(`^[a-z][a-z0-9]{0,31}$`)

// Open opens a backend, and creates its streams if they do not exist.
func Open(ctx context.Context, cfg Config) (*Backend, error) {
	if cfg.Conn == nil {
		return nil, errors.New("fleet: Config.Conn is required")
	}
	if cfg.Name == "" {
		cfg.Name = "parley"
	}
	if !validName.MatchString(cfg.Name) {
		return nil, fmt.Errorf("fleet: %q is not a name of a fleet: use up to 32 lower-case letters and digits", cfg.Name)
	}
	switch cfg.Replicas {
	case 0:
		cfg.Replicas = replicasOf(cfg.Conn)
	case 1, 3:
	default:
		return nil, fmt.Errorf("fleet: %d replicas are not possible: use 1 or 3", cfg.Replicas)
	}
	if cfg.Lease == 0 {
		cfg.Lease = 30 * time.Second
	}
	if cfg.Lease < time.Second {
		return nil, fmt.Errorf("fleet: a lease of %v is too short: use at least 1s, and 15s with three nodes", cfg.Lease)
	}
	if strings.Contains(cfg.Worker, "/") { // such a name belongs to a tenant
		return nil, fmt.Errorf("fleet: the name %q of this process must not contain a slash", cfg.Worker)
	}
	js, err := jetstream.New(cfg.Conn)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	b := &Backend{cfg: cfg, nc: cfg.Conn, js: js, id: session.NewID(), tails: map[string]tail{}, began: map[string]*hub.Created{}}
	if cfg.Worker == "" {
		b.cfg.Worker = b.id
	}
	b.ctx, b.stop = context.WithCancel(context.Background())
	b.beat.freed = make(chan struct{}, 1)
	b.beat.held, b.beat.acquiring, b.beat.seen = map[string]*lease{}, map[string]*lease{}, map[string]*sighting{}
	if cfg.MustExist {
		if _, err := js.KeyValue(ctx, cfg.Name+"-"+workerKV); err != nil {
			b.stop()
			return nil, fmt.Errorf("fleet: there is no fleet %q: start a node first (%w)", cfg.Name, err)
		}
	}
	if err := b.createStreams(ctx); err != nil {
		b.stop()
		return nil, err
	}
	b.beat.forget = max(2*b.cfg.Lease, 5*goneTime)
	return b, nil
}

// replicasOf returns how many servers should store each entry of a new fleet.
func replicasOf(nc *nats.Conn) int {
	if nc.ConnectedClusterName() != "" {
		return 3
	}
	return 1
}

// The streams and buckets of a fleet, without its name.
const (
	logStream  = "log"  // a subject per session: its journal
	inStream   = "in"   // a subject per item of an inbox
	workStream = "work" // a subject per session that has work to do
	blobBucket = "blobs"
	leaseKV    = "leases"
	workerKV   = "workers"
)

func (b *Backend) stream(kind string) string { return b.cfg.Name + "-" + kind }

// createStreams creates the missing streams. Another process may do the same meanwhile.
func (b *Backend) createStreams(ctx context.Context) error {
	n := b.cfg.Name
	for _, kind := range []string{logStream, inStream, workStream} {
		cfg := jetstream.StreamConfig{
			Name: b.stream(kind), Subjects: []string{n + "." + kind + ".>"}, Replicas: b.cfg.Replicas, Storage: jetstream.FileStorage,
			Compression: jetstream.NoCompression, AllowDirect: true, Duplicates: 2 * time.Minute,
			RePublish: &jetstream.RePublish{Source: n + "." + kind + ".>", Destination: n + ".live." + kind + ".>"},
		}
		if kind == workStream { // it has one message for each session, from when the session was first woken
			cfg.MaxMsgsPerSubject, cfg.Discard, cfg.DiscardNewPerSubject = 1, jetstream.DiscardNew, true
		}
		if err := b.create(ctx, func(ctx context.Context) error {
			_, err := b.js.CreateStream(ctx, cfg)
			if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // it exists with another configuration: keep its replicas
				err = b.uncompress(ctx, cfg.Name)
			}
			return err
		}); err != nil {
			return fmt.Errorf("fleet: the stream %s cannot be created: %w", cfg.Name, err)
		}
	}
	return b.create(ctx, func(ctx context.Context) (err error) {
		if b.blobs, err = b.js.ObjectStore(ctx, n+"-"+blobBucket); errors.Is(err, jetstream.ErrBucketNotFound) {
			b.blobs, err = b.js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{Bucket: n + "-" + blobBucket, Replicas: b.cfg.Replicas})
		}
		if err != nil {
			return fmt.Errorf("fleet: the bucket of large entries cannot be created: %w", err)
		}
		for _, kv := range []struct {
			to  *jetstream.KeyValue
			cfg jetstream.KeyValueConfig
		}{
			{&b.leases, jetstream.KeyValueConfig{Bucket: n + "-" + leaseKV, Replicas: b.cfg.Replicas, LimitMarkerTTL: time.Minute}},
			{&b.workers, jetstream.KeyValueConfig{Bucket: n + "-" + workerKV, Replicas: b.cfg.Replicas, TTL: b.cfg.Lease}},
			{&b.state, jetstream.KeyValueConfig{Bucket: n + "-" + stateKV, Replicas: b.cfg.Replicas}},
		} {
			if *kv.to, err = b.js.KeyValue(ctx, kv.cfg.Bucket); errors.Is(err, jetstream.ErrBucketNotFound) {
				*kv.to, err = b.js.CreateKeyValue(ctx, kv.cfg)
			}
			if err != nil {
				return fmt.Errorf("fleet: the bucket %s cannot be created: %w", kv.cfg.Bucket, err)
			}
		}
		status, err := b.workers.Status(ctx)
		if err == nil {
			b.cfg.Lease = status.TTL()
		}
		return err
	})
}

// uncompress ends the compression of a stream that an earlier version created. NATS 2.15.2 damages compressed streams: when
// a server that was killed starts again, it truncates its copy, compresses the file, and then appends messages that are not
// compressed. At its next start it cannot read the file.
func (b *Backend) uncompress(ctx context.Context, stream string) error {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	cfg := s.CachedInfo().Config
	if cfg.Compression == jetstream.NoCompression {
		return nil
	}
	cfg.Compression = jetstream.NoCompression
	_, err = b.js.UpdateStream(ctx, cfg)
	return err
}

// create retries f until it succeeds: a new cluster has no leader yet, and another
// process may create the same streams.
func (b *Backend) create(ctx context.Context, f func(context.Context) error) error {
	return b.retryFrom(ctx, 5*time.Second, 5*time.Second, f)
}

// retry retries f, a request, until it succeeds: see request.
func (b *Backend) retry(ctx context.Context, f func(context.Context) error) error {
	return b.retryFrom(ctx, firstTry, tryTime, f)
}

// retryFrom retries f until it succeeds. The first try may take the time each, and later ones at most the time most. On a
// slow link they may take longer.
func (b *Backend) retryFrom(ctx context.Context, each, most time.Duration, f func(context.Context) error) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 250*time.Millisecond) {
		try, cancel := context.WithTimeout(ctx, b.patience(each))
		err := f(try)
		cancel()
		var api *jetstream.APIError
		passing := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrBucketExists) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
			errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.As(err, &api) && (api.Code == 503 || api.Code == 500 || api.ErrorCode == codeInFlight)
		if err == nil || !passing || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, context.DeadlineExceeded) {
			each = min(2*each, most)
			b.measure(ctx)
		}
		if sleep(ctx, wait) != nil {
			return fmt.Errorf("%w (the last error was: %w)", context.Cause(ctx), err)
		}
	}
}

// sleep waits, unless ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close releases all leases and ends the background work of the backend.
func (b *Backend) Close() error {
	b.beat.closeAll()
	b.stop()
	<-b.work.Close()
	b.beat.leave(b)
	return nil
}
