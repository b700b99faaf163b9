package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/parley-go/parley/transport"
)

// A Link is a stream of bytes in both directions that outlives its connections: each end
// counts the bytes that it received, and bytes that were in transit when a connection broke
// are sent again over the next one. Both ends hold a Link. It is safe for concurrent use.
//
// A WebSocket message is either a chunk of the stream or a count. See [Link.Serve].
type Link struct {
	mu      sync.Mutex
	changed sync.Cond
	in      []byte // received, not yet read

	received uint64 // bytes in total
	told     uint64 // the count that the other end knows
	out      []byte // written, and not known to be received
	base     uint64 // the number of bytes before out
	sent     uint64 // the number of bytes passed to the connection
	turn     uint64 // of the current connection
	closing  bool   // nothing more is written
	err      error  // why it has ended
	done     chan struct{}
}

const (
	linkPiece = 64 << 10 // bytes in a message
	linkCount = 32 << 10 // bytes after which a count is sent
	linkLimit = 16 << 20 // bytes that may be queued in each direction

	linkBeat  = 20 * time.Second // interval of keep-alives on a connection
	linkReply = 10 * time.Second // how long the other end may take to answer

	tagPiece, tagCount = 0, 1 // the first byte of a message
)

// NewLink returns a link without a connection.
func NewLink() *Link {
	l := &Link{done: make(chan struct{})}
	l.changed.L = &l.mu
	return l
}

// Done is closed when the link has ended.
func (l *Link) Done() <-chan struct{} { return l.done }

// End ends the link for a reason, which Read returns after the received bytes.
func (l *Link) End(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(err)
}

func (l *Link) end(err error) {
	if l.err == nil {
		l.err = err
		close(l.done)
	}
	l.changed.Broadcast()
}

// Read reads what the other end wrote. It returns [io.EOF] when the other end closed the
// link.
func (l *Link) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.in) == 0 && l.err == nil {
		l.changed.Wait()
	}
	if len(l.in) == 0 {
		return 0, l.err
	}
	n := copy(p, l.in)
	if l.in = l.in[n:]; len(l.in) == 0 {
		l.in = nil
	}
	l.changed.Broadcast()
	return n, nil
}

// Write returns when the bytes are queued. It blocks while the other end has not received 16
// MB.
func (l *Link) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.out) >= linkLimit && l.err == nil && !l.closing {
		l.changed.Wait()
	}
	if l.err != nil || l.closing {
		return 0, fmt.Errorf("remote: %w", transport.ErrInputClosed)
	}
	l.out = append(l.out, p...)
	l.changed.Broadcast()
	return len(p), nil
}

// CloseWrite ends the link when the other end has received everything.
func (l *Link) CloseWrite() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closing = true
	l.changed.Broadcast()
	return nil
}

// Close ends the link at once.
func (l *Link) Close() error {
	l.End(io.EOF)
	return nil
}

// Received stops the current connection of the link, if any, and returns how many bytes were
// received, so that the other end can continue from there.
func (l *Link) Received() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn++
	l.changed.Broadcast()
	return l.received
}

// Serve uses a connection until it breaks, another one replaces it or the link ends. The
// other end has received a number of bytes, and knows [Link.Received].
func (l *Link) Serve(ctx context.Context, conn *websocket.Conn, received uint64) error {
	defer conn.CloseNow()
	conn.SetReadLimit(linkPiece + 1)
	l.mu.Lock()
	if received < l.base || received > l.base+uint64(len(l.out)) {
		l.end(errors.New("remote: the ends of the connection do not agree on what was sent"))
	}
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	l.trim(received)
	l.turn++
	turn := l.turn
	l.told, l.sent = l.received, received
	l.changed.Broadcast()
	l.mu.Unlock()

	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	work.Go(func() { cancel(l.receive(ctx, conn, turn)) })
	work.Go(func() {
		for {
			select {
			case <-time.After(linkBeat):
			case <-ctx.Done():
				return
			}
			reply, stop := context.WithTimeout(ctx, linkReply)
			err := conn.Ping(reply)
			if stop(); err != nil {
				cancel(err)
			}
		}
	})
	wake := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})
	err := l.send(ctx, conn, turn)
	if errors.Is(err, errLinkClosing) { // the other end responds when it has read everything
		err = conn.Close(websocket.StatusNormalClosure, "")
	}
	cancel(err)
	wake()
	conn.CloseNow()
	work.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	return context.Cause(ctx)
}

// errLinkClosing ends send when there is nothing more to write.
var errLinkClosing = errors.New("remote: everything was sent")

// trim removes the bytes that the other end has received.
func (l *Link) trim(received uint64) {
	if l.out = l.out[received-l.base:]; len(l.out) == 0 {
		l.out = nil
	}
	l.base = received
}

// send writes queued bytes and counts.
func (l *Link) send(ctx context.Context, conn *websocket.Conn, turn uint64) error {
	for {
		l.mu.Lock()
		var message []byte
		var err error
		for message == nil && err == nil {
			switch rest := l.out[l.sent-l.base:]; {
			case l.err != nil:
				err = l.err
			case ctx.Err() != nil:
				err = context.Cause(ctx)
			case l.turn != turn:
				err = errors.New("remote: another connection took over")
			case l.received-l.told >= linkCount:
				l.told = l.received
				message = binary.BigEndian.AppendUint64([]byte{tagCount}, l.received)
			case len(rest) > 0:
				message = append([]byte{tagPiece}, rest[:min(len(rest), linkPiece)]...)
				l.sent += uint64(len(message) - 1)
			case l.closing:
				err = errLinkClosing
			default:
				l.changed.Wait()
			}
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
		if err := conn.Write(ctx, websocket.MessageBinary, message); err != nil {
			return err
		}
	}
}

// receive processes the messages of the other end.
func (l *Link) receive(ctx context.Context, conn *websocket.Conn, turn uint64) error {
	for {
		_, data, err := conn.Read(ctx)
		l.mu.Lock()
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure && l.turn == turn {
			l.end(io.EOF)
		}
		switch {
		case err != nil:
		case l.turn != turn:
			err = errors.New("remote: another connection took over")
		case len(data) > 0 && data[0] == tagPiece:
			l.in = append(l.in, data[1:]...)
			l.received += uint64(len(data) - 1)
			l.changed.Broadcast()
		case len(data) == 9 && data[0] == tagCount && binary.BigEndian.Uint64(data[1:])-l.base <= l.sent-l.base:
			l.trim(binary.BigEndian.Uint64(data[1:]))
			l.changed.Broadcast()
		default:
			err = errors.New("remote: the other end does not speak this protocol")
		}
		for len(l.in) >= linkLimit && l.err == nil && ctx.Err() == nil {
			l.changed.Wait()
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
