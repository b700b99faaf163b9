package serve

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/parley-go/parley/hub"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// counters count events since the server started.
type counters struct {
	requests, failed, refused, streams atomic.Int64
}

// health responds whether the server accepts requests. It needs no token and reveals
// nothing else.
func health(c *call) {
	status, text := http.StatusOK, "ok\n"
	if c.s.ctx.Err() != nil {
		status, text = http.StatusServiceUnavailable, "going away\n"
	}
	c.w.Header().Set("Content-Type", "text/plain")
	c.w.WriteHeader(status)
	fmt.Fprint(c.w, text)
}

// A measurement is one number of the server. Counters only grow.
type measurement struct {
	name, help string // the name as Prometheus writes it
	counts     bool
	phase      hub.Phase // of the sessions that are counted; empty if the number is not about sessions
	value      int64
}

// export exports the measurements with OpenTelemetry until the server is closed. A name has the
// form of OpenTelemetry: "parley.requests.failed" is parley_requests_failed_total in the text of
// Prometheus.
func (s *Server) export(p metric.MeterProvider) error {
	by := hub.Actor{Name: "metrics", Rights: hub.MayView}
	first, err := s.measure(s.ctx, by)
	if err != nil {
		return err
	}
	meter, all := p.Meter("github.com/parley-go/parley/serve"), map[string]metric.Int64Observable{}
	for _, m := range first {
		if all[m.name] != nil {
			continue
		}
		name, unit := strings.TrimSuffix(m.name, "_total"), "1"
		if n, ok := strings.CutSuffix(name, "_bytes"); ok {
			name, unit = n, "By"
		}
		name = strings.ReplaceAll(name, "_", ".")
		if m.counts {
			all[m.name], err = meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(m.help))
		} else {
			all[m.name], err = meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(m.help))
		}
		if err != nil {
			return err
		}
	}
	var list []metric.Observable
	for _, i := range all {
		list = append(list, i)
	}
	s.exported, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		now, err := s.measure(ctx, by)
		for _, m := range now {
			var attrs []attribute.KeyValue
			if m.phase != "" {
				attrs = append(attrs, attribute.String("phase", string(m.phase)))
			}
			o.ObserveInt64(all[m.name], m.value, metric.WithAttributes(attrs...))
		}
		return err
	}, list...)
	return err
}

// measure returns all measurements.
func (s *Server) measure(ctx context.Context, by hub.Actor) ([]measurement, error) {
	all, err := s.cfg.Hub.List(ctx, by)
	if err != nil {
		return nil, err
	}
	phases := map[hub.Phase]int64{}
	asks := int64(0)
	for _, i := range all {
		phases[i.State.Phase]++
		for _, w := range i.State.Waiting {
			if w.Kind == "ask" {
				asks++
			}
		}
	}
	var list []measurement
	for _, p := range []hub.Phase{hub.Idle, hub.Running, hub.RequiresAction} {
		list = append(list, measurement{"parley_sessions", "Sessions by what they are doing.", false, p, phases[p]})
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return append(list,
		measurement{"parley_approvals_open", "Questions that nobody has answered.", false, "", asks},
		measurement{"parley_streams", "Connections that receive events now.", false, "", s.counters.streams.Load()},
		measurement{"parley_requests_total", "Requests.", true, "", s.counters.requests.Load()},
		measurement{"parley_requests_failed_total", "Requests that failed.", true, "", s.counters.failed.Load()},
		measurement{"parley_requests_refused_total", "Requests that were refused: no token, a wrong one, a wrong host or origin.", true, "", s.counters.refused.Load()},
		measurement{"parley_memory_bytes", "Memory that the process has of the system.", false, "", int64(mem.Sys - mem.HeapReleased)},
		measurement{"parley_goroutines", "Goroutines.", false, "", int64(runtime.NumGoroutine())},
	), nil
}

// metrics writes the measurements in the text format of Prometheus.
func metrics(c *call) {
	list, err := c.s.measure(c.r.Context(), c.Actor)
	if err != nil {
		c.s.fail(c.w, c.r, c.identity, err)
		return
	}
	c.w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	last := ""
	for _, m := range list {
		if m.name != last {
			kind := "gauge"
			if m.counts {
				kind = "counter"
			}
			fmt.Fprintf(c.w, "# HELP %s %s\n# TYPE %s %s\n", m.name, m.help, m.name, kind)
			last = m.name
		}
		label := ""
		if m.phase != "" {
			label = `{phase="` + string(m.phase) + `"}`
		}
		fmt.Fprintf(c.w, "%s%s %d\n", m.name, label, m.value)
	}
}
