package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/parley-go/parley/fleet"
)

// natsFlags are the flags for the connection to NATS, with credentials in the forms of NATS.
type natsFlags struct {
	url, creds, nkey, ca, cert, key, data, fleet string
}

func (n *natsFlags) add(fs *flag.FlagSet) {
	fs.StringVar(&n.url, "nats", "", "the `URL` of an existing NATS cluster, such as nats://nats.example.com:4222; separate several by commas")
	fs.StringVar(&n.creds, "creds", "", "a NATS credentials `FILE` (JWT)")
	fs.StringVar(&n.nkey, "nkey", "", "a `FILE` with the seed of an NKey")
	fs.StringVar(&n.ca, "tls-ca", "", "a `FILE` with the certificate authority of the NATS server")
	fs.StringVar(&n.cert, "tls-cert", "", "a `FILE` with the certificate of this client")
	fs.StringVar(&n.key, "tls-key", "", "a `FILE` with the key of that certificate")
	fs.StringVar(&n.data, "data", "", "the `DIRECTORY` of a node on this machine")
	fs.StringVar(&n.fleet, "fleet", "parley", "the `NAME` of the fleet, if several share a NATS cluster")
}

// options returns the options of NATS.
func (n *natsFlags) options(name string) ([]nats.Option, error) {
	opts := []nats.Option{nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(fleet.ReconnectWait), nats.RetryOnFailedConnect(false)}
	if n.creds != "" {
		opts = append(opts, nats.UserCredentials(n.creds))
	}
	if n.nkey != "" {
		o, err := nats.NkeyOptionFromSeed(n.nkey)
		if err != nil {
			return nil, fmt.Errorf("--nkey %s: %w", n.nkey, err)
		}
		opts = append(opts, o)
	}
	if n.ca != "" {
		opts = append(opts, nats.RootCAs(n.ca))
	}
	if (n.cert == "") != (n.key == "") {
		return nil, usagef("--tls-cert and --tls-key belong together")
	}
	if n.cert != "" {
		opts = append(opts, nats.ClientCert(n.cert, n.key))
	}
	return opts, nil
}

// connect connects to the cluster of --nats, or to the node of --data.
func (n *natsFlags) connect(name string) (*nats.Conn, error) {
	opts, err := n.options(name)
	if err != nil {
		return nil, err
	}
	switch {
	case n.url == "" && n.data == "":
		return nil, usagef("it needs --data DIRECTORY of a node on this machine, or --nats URL")
	case n.url == "":
		var node nodeFile
		if err := readJSON(filepath.Join(n.data, "node.json"), &node); err != nil {
			return nil, fmt.Errorf("no node runs in %s: start one with parley-fleet up --data %s (%w)", n.data, n.data, err)
		}
		n.url = node.NATS
		opts = append(opts, nats.Token(node.Token))
	}
	nc, err := nats.Connect(n.url, opts...)
	if err != nil {
		return nil, fmt.Errorf("NATS cannot be reached at %s: %w; check the address, the credentials, and that the server runs", withoutPassword(n.url), err)
	}
	return nc, nil
}

// open opens a fleet that exists, for a command. The caller calls end.
func (n *natsFlags) open(ctx context.Context, command string) (b *fleet.Backend, end func(), err error) {
	nc, err := n.connect("parley-fleet " + command)
	if err != nil {
		return nil, nil, err
	}
	if b, err = fleet.Open(ctx, fleet.Config{Conn: nc, Name: n.fleet, MustExist: true}); err != nil {
		nc.Close()
		return nil, nil, err
	}
	return b, func() { b.Close(); nc.Close() }, nil
}

// withoutPassword hides the user information of URLs.
func withoutPassword(urls string) string {
	list := strings.Split(urls, ",")
	for i, u := range list {
		if at := strings.LastIndexByte(u, '@'); at >= 0 {
			scheme, _, _ := strings.Cut(u, "://")
			list[i] = scheme + "://…" + u[at:]
		}
	}
	return strings.Join(list, ",")
}

// A nodeFile describes how to reach a running node from this machine.
type nodeFile struct {
	NATS  string `json:"nats"`
	Token string `json:"token"`
	URL   string `json:"url,omitempty"` // of the API
}

func readJSON(file string, v any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, v)
}

// writeJSON atomically replaces a file that only this user can read.
func writeJSON(file string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// clusterToken returns the shared secret of the nodes of a fleet: from a file, or generated
// for a fleet of one node.
func clusterToken(data, file string) (string, error) {
	if file == "" {
		file = filepath.Join(data, "token")
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			if fleet.IsMember(data) {
				return "", usagef("this node is one of three: it needs --token-file with the secret that they share")
			}
			if err := os.WriteFile(file, []byte(rand.Text()+rand.Text()+"\n"), 0o600); err != nil {
				return "", err
			}
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if token := strings.TrimSpace(string(text)); len(token) >= 16 {
		return token, nil
	}
	return "", fmt.Errorf("%s must hold a secret of at least 16 characters", file)
}
