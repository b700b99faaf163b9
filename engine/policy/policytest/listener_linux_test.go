package policytest

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// A listener waits for attacks that connect to a host, on the ports of common services,
// and serves a script that creates the mark to every client.
type listener struct {
	arrived chan struct{} // has one element for each connection, up to its size
	count   atomic.Int64
}

const listenerPort = 7777

var listenerPorts = []int{21, 22, 23, 25, 43, 53, 69, 79, 80, 110, 143, 389, 443, 587, 873, 1080, 2049, 3128, 3306, 5432, 5900, 6379, 6667, 8080, 9418, 11211, listenerPort}

const listenerSocket = "/tmp/attacks.sock"

func listen(mark string) (*listener, error) {
	l := &listener{arrived: make(chan struct{}, 1000)}
	answer := []byte(fmt.Sprintf("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\ntouch %s\n", mark))
	serve := func(in net.Listener) {
		for {
			c, err := in.Accept()
			if err != nil {
				return
			}
			l.note()
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(100 * time.Millisecond))
				c.Read(make([]byte, 4096))
				c.Write(answer)
			}()
		}
	}
	for _, network := range []string{"tcp4", "tcp6"} {
		for _, port := range listenerPorts {
			in, err := net.Listen(network, fmt.Sprintf(":%d", port))
			if err != nil {
				if network == "tcp6" {
					continue // no IPv6 here
				}
				return nil, err
			}
			go serve(in)
		}
	}
	for _, name := range []string{listenerSocket, "@attacks"} {
		in, err := net.Listen("unix", name)
		if err != nil {
			return nil, err
		}
		go serve(in)
	}
	for _, port := range []int{53, 69, 123, 161, 514, listenerPort} {
		in, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", port))
		if err != nil {
			return nil, err
		}
		go func() {
			buf := make([]byte, 4096)
			for {
				n, from, err := in.ReadFrom(buf)
				if err != nil {
					return
				}
				l.note()
				if port == 53 {
					in.WriteTo(answerName(buf[:n]), from)
				}
			}
		}()
	}
	return l, nil
}

func (l *listener) note() {
	l.count.Add(1)
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// forget drops the connections so far.
func (l *listener) forget() {
	for {
		select {
		case <-l.arrived:
		default:
			l.count.Store(0)
			return
		}
	}
}

// reached reports whether a client has connected. It waits a moment for one.
func (l *listener) reached() bool {
	select {
	case <-l.arrived:
		return true
	case <-time.After(500 * time.Millisecond):
		return false
	}
}

// answerName answers a DNS query for the address of any name with the loopback address.
func answerName(q []byte) []byte {
	if len(q) < 17 {
		return nil
	}
	end := 12
	for end < len(q) && q[end] != 0 {
		end += int(q[end]) + 1
	}
	end += 5
	if end > len(q) {
		return nil
	}
	out := append([]byte{q[0], q[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0}, q[12:end]...)
	if q[end-3] != 1 { // not an IPv4 address query
		out[7] = 0
		return out
	}
	return append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 1)
}
