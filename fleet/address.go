package fleet

import (
	"fmt"
	"net"
	"net/url"
	"strconv"

	"github.com/nats-io/nats-server/v2/server"
)

// clusterName is the name of every cluster of embedded servers.
const clusterName = "parley"

// setAddresses sets the addresses on which the server listens and which it joins.
func (cfg ServerConfig) setAddresses(opts *server.Options) (err error) {
	if cfg.Listen != "" {
		if opts.Host, opts.Port, err = splitAddress(cfg.Listen); err != nil {
			return err
		}
	}
	if cfg.Cluster == "" {
		if len(cfg.Routes) > 0 {
			return fmt.Errorf("fleet: routes need an address for the other servers: set ServerConfig.Cluster")
		}
		return nil
	}
	if len(cfg.Routes) != 3 {
		return fmt.Errorf("fleet: a cluster has three nodes, and %d are given: two have no majority when one is down, so use one or three", len(cfg.Routes))
	}
	if cfg.Listen == "" { // NATS starts routes only after it listens for clients
		opts.DontListen, opts.Host, opts.Port = false, "127.0.0.1", server.RANDOM_PORT
	}
	c := &opts.Cluster
	c.Name, c.Advertise, c.NoAdvertise = clusterName, cfg.Advertise, cfg.Advertise == ""
	if c.Host, c.Port, err = splitAddress(cfg.Cluster); err != nil {
		return err
	}
	if cfg.Token != "" {
		c.Username, c.Password = "fleet", cfg.Token
	}
	for _, r := range cfg.Routes {
		if _, _, err := splitAddress(r); err != nil {
			return err
		}
		u := &url.URL{Scheme: "nats-route", Host: r}
		if cfg.Token != "" {
			u.User = url.UserPassword("fleet", cfg.Token)
		}
		opts.Routes = append(opts.Routes, u)
	}
	return nil
}

// canListen returns an error if a server cannot listen on one of these addresses; empty ones are skipped. NATS itself
// tries for 30 seconds and does not report why it fails.
func canListen(addresses ...string) error {
	for _, a := range addresses {
		if a == "" {
			continue
		}
		l, err := net.Listen("tcp", a)
		if err != nil {
			return fmt.Errorf("fleet: the NATS server cannot listen on %s: %w", a, err)
		}
		l.Close()
	}
	return nil
}

// splitAddress splits "host:port". The port 0 means any.
func splitAddress(s string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(s)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 0 || port > 65535 {
		return "", 0, fmt.Errorf("fleet: %q is not an address such as 10.0.0.1:6222", s)
	}
	if port == 0 {
		port = server.RANDOM_PORT
	}
	return host, port, nil
}
