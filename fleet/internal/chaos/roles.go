package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
	"github.com/parley-go/parley"
	"github.com/parley-go/parley/agent"
	"github.com/parley-go/parley/engine/model"
	"github.com/parley-go/parley/fleet"
	"github.com/parley-go/parley/hub"
	"github.com/parley-go/parley/parleytest"
)

// runNode runs one of the NATS servers.
func runNode(ctx context.Context, spec string) error {
	var cfg fleet.ServerConfig
	if err := json.Unmarshal([]byte(spec), &cfg); err != nil {
		return err
	}
	cfg.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", cfg.Name)
	s, err := fleet.StartServer(cfg)
	if err != nil {
		return err
	}
	<-ctx.Done()
	s.Shutdown()
	return nil
}

// A workerSpec configures a worker process.
type workerSpec struct {
	Name, URLs, Ledger string
	Lease              time.Duration
}

// processName returns the name of one run of a worker.
func processName(name string, pid int) string { return fmt.Sprintf("%s.%d", name, pid) }

// runWorker runs one of the workers.
func runWorker(ctx context.Context, text string) error {
	var spec workerSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	nc, err := nats.Connect(spec.URLs, nats.MaxReconnects(-1), nats.ReconnectWait(fleet.ReconnectWait), nats.RetryOnFailedConnect(true))
	if err != nil {
		return err
	}
	b, err := fleet.Open(ctx, fleet.Config{Conn: nc, Replicas: 3, Lease: spec.Lease, Worker: spec.Name})
	if err != nil {
		return err
	}
	w := fleet.NewWorker(b, 100, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	h, err := hub.New(hub.Config{Backend: w.Backend(), Name: processName(spec.Name, os.Getpid()), IdleAfter: time.Second, Agent: func(_ context.Context, start hub.Start) (*parley.Options, error) {
		cfg := agent.Config{Model: echo{spec.Ledger}, Store: start.Store, Environ: os.Environ()}
		return &parley.Options{Cwd: start.Cwd, Dialer: agent.InProcess(cfg), AllowedTools: []string{"Bash"}}, nil
	}})
	if err != nil {
		return err
	}
	return w.Run(ctx, h)
}

// echo is a model that answers every prompt with one call, which adds a line to the ledger: the prompt
// and the call.
type echo struct{ ledger string }

// Stream implements [model.Model].
func (m echo) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Event, error] {
	var body struct {
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	json.Unmarshal(req.Body, &body)
	turn := parleytest.Say("Done.")
	if n := len(body.Messages); n > 0 {
		last := string(body.Messages[n-1].Content)
		if i := strings.LastIndex(last, "prompt-"); i >= 0 && !strings.Contains(last, `"tool_result"`) {
			name, _, _ := strings.Cut(last[i:], `"`)
			call := "toolu_" + nuid.Next()
			turn = parleytest.Say("I do it.").CallID(call, "Bash", map[string]string{"command": fmt.Sprintf("echo %s %s >> %s", strings.TrimSpace(name), call, m.ledger), "description": "note"})
		}
	}
	return parleytest.Script(turn).Model().Stream(ctx, req)
}
