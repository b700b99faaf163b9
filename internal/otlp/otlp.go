// Package otlp sends OpenTelemetry's spans and metrics to a collector, as JSON over
// HTTP, configured by the variables of the specification. OpenTelemetry's own SDK and
// exporters would add more than a megabyte to the command (protobuf, gRPC); this
// package has only the parts that we need. Collectors accept JSON at the same address.
//
// It opens no connection before there is something to send, and a collector that does
// not answer delays only [Exporter.Shutdown], up to its time limit.
package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// An Exporter sends spans and metrics. Its providers are nil if they are not
// configured.
type Exporter struct {
	Traces  trace.TracerProvider
	Metrics metric.MeterProvider
	// OnError receives the errors of exports; it may be nil. It must be set before
	// anything is measured.
	OnError func(error)

	tracer   *tracer
	meter    *meter
	spansTo  *target
	pointsTo *target
	resource []attribute.KeyValue
	limit    time.Duration
	stop     chan struct{}
	stopped  chan struct{}
}

// Intervals at which spans and metrics are sent.
const (
	spanInterval  = 5 * time.Second
	pointInterval = time.Minute
)

// FromEnv returns an exporter configured by the environment, or nil if none is
// configured. version is that of the service.
func FromEnv(getenv func(string) string, version string) (*Exporter, error) {
	if strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	traces, err := endpoint(getenv, "TRACES")
	if err != nil {
		return nil, err
	}
	metrics, err := endpoint(getenv, "METRICS")
	if err != nil || traces == nil && metrics == nil {
		return nil, err
	}
	name := getenv("OTEL_SERVICE_NAME")
	if name == "" {
		name = "parley"
	}
	e := &Exporter{
		spansTo: traces, pointsTo: metrics,
		resource: []attribute.KeyValue{attribute.String("service.name", name), attribute.String("service.version", version)},
		stop:     make(chan struct{}), stopped: make(chan struct{}),
	}
	given, err := pairs("OTEL_RESOURCE_ATTRIBUTES", getenv)
	if err != nil {
		return nil, err
	}
	for _, p := range given {
		e.resource = append(e.resource, attribute.String(p[0], p[1]))
	}
	var full chan struct{}
	if traces != nil {
		e.limit = traces.limit
		e.tracer = newTracer()
		e.Traces, full = tracerProvider{tracer: e.tracer}, e.tracer.full
	}
	if metrics != nil {
		e.limit = max(e.limit, metrics.limit)
		e.meter = &meter{began: time.Now()}
		e.Metrics = meterProvider{meter: e.meter}
	}
	go e.run(full)
	return e, nil
}

// run sends periodically.
func (e *Exporter) run(full <-chan struct{}) {
	defer close(e.stopped)
	spans, points := time.NewTicker(spanInterval), time.NewTicker(pointInterval)
	defer spans.Stop()
	defer points.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-spans.C:
			e.report(e.sendSpans(context.Background()))
		case <-full:
			e.report(e.sendSpans(context.Background()))
		case <-points.C:
			e.report(e.sendPoints(context.Background()))
		}
	}
}

func (e *Exporter) report(err error) {
	if err != nil && e.OnError != nil {
		e.OnError(err)
	}
}

// Shutdown sends the remaining data.
func (e *Exporter) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	close(e.stop)
	select {
	case <-e.stopped:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return errors.Join(e.sendSpans(ctx), e.sendPoints(ctx))
}

// A target is one address of a collector.
type target struct {
	url    string
	header http.Header
	limit  time.Duration
	client *http.Client
}

// endpoint reads the variables of one signal; nil means that it is not configured.
func endpoint(getenv func(string) string, signal string) (*target, error) {
	get := func(name string) (string, string) {
		for _, variable := range []string{"OTEL_EXPORTER_OTLP_" + signal + "_" + name, "OTEL_EXPORTER_OTLP_" + name} {
			if v := getenv(variable); v != "" {
				return v, variable
			}
		}
		return "", ""
	}
	exporter := getenv("OTEL_" + signal + "_EXPORTER")
	address, variable := get("ENDPOINT")
	switch {
	case exporter == "none", exporter == "" && address == "":
		return nil, nil
	case exporter != "" && exporter != "otlp":
		return nil, fmt.Errorf("OTEL_%s_EXPORTER is %q: only otlp and none are known here", signal, exporter)
	case address == "":
		address = "http://localhost:4318"
	}
	if protocol, variable := get("PROTOCOL"); protocol == "grpc" {
		return nil, fmt.Errorf("%s is grpc: telemetry is sent over HTTP only; set it to http/json and the endpoint to the collector's HTTP port, mostly 4318", variable)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%s is %q: want an address such as http://localhost:4318", variable, address)
	}
	if variable != "OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT" {
		u = u.JoinPath("v1", strings.ToLower(signal))
	}
	t := &target{url: u.String(), header: http.Header{"Content-Type": {"application/json"}}, limit: 10 * time.Second, client: &http.Client{}}
	if ms, variable := get("TIMEOUT"); ms != "" {
		n, err := strconv.Atoi(ms)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%s is %q: want milliseconds", variable, ms)
		}
		t.limit = time.Duration(n) * time.Millisecond
	}
	_, variable = get("HEADERS")
	headers, err := pairs(variable, getenv)
	if err != nil {
		return nil, err
	}
	for _, h := range headers {
		t.header.Set(h[0], h[1])
	}
	return t, nil
}

// pairs parses a variable of the form "key=value,key=value", with URL-escaped values.
func pairs(variable string, getenv func(string) string) ([][2]string, error) {
	var list [][2]string
	for pair := range strings.SplitSeq(getenv(variable), ",") {
		if pair = strings.TrimSpace(pair); pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		text, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || err != nil {
			return nil, fmt.Errorf("%s has an entry that is not key=value", variable) // not shown: it may be a secret
		}
		list = append(list, [2]string{strings.TrimSpace(key), text})
	}
	return list, nil
}

// post sends one request.
func (t *target) post(ctx context.Context, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header = t.header.Clone()
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the collector at %s answered %s: %s", t.url, resp.Status, bytes.TrimSpace(said))
	}
	return nil
}

// The JSON of the protocol: 64-bit numbers are strings, ids are hexadecimal.

type object = map[string]any

func attributesOf(list []attribute.KeyValue) []object {
	out := make([]object, 0, len(list))
	for _, a := range list {
		out = append(out, object{"key": string(a.Key), "value": valueOf(a.Value)})
	}
	return out
}

func valueOf(v attribute.Value) object {
	switch v.Type() {
	case attribute.BOOL:
		return object{"boolValue": v.AsBool()}
	case attribute.INT64:
		return object{"intValue": strconv.FormatInt(v.AsInt64(), 10)}
	case attribute.FLOAT64:
		return object{"doubleValue": v.AsFloat64()}
	case attribute.STRINGSLICE:
		var values []object
		for _, s := range v.AsStringSlice() {
			values = append(values, object{"stringValue": s})
		}
		return object{"arrayValue": object{"values": values}}
	}
	return object{"stringValue": v.String()}
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// sendSpans sends the ended spans.
func (e *Exporter) sendSpans(ctx context.Context) error {
	if e.tracer == nil {
		return nil
	}
	spans := e.tracer.drain()
	if len(spans) == 0 {
		return nil
	}
	var list []object
	for _, s := range spans {
		list = append(list, s.object())
	}
	return e.spansTo.post(ctx, object{"resourceSpans": []object{{
		"resource":   object{"attributes": attributesOf(e.resource)},
		"scopeSpans": []object{{"scope": object{"name": scope}, "spans": list}},
	}}})
}

const scope = "github.com/parley-go/parley"

func (s *span) object() object {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := object{
		"traceId": s.context.TraceID().String(), "spanId": s.context.SpanID().String(),
		"name": s.name, "kind": int(s.kind),
		"startTimeUnixNano": nanos(s.began), "endTimeUnixNano": nanos(s.ended),
		"attributes": attributesOf(s.attrs),
	}
	if s.parent.IsValid() {
		o["parentSpanId"] = s.parent.String()
	}
	if state := s.context.TraceState().String(); state != "" {
		o["traceState"] = state
	}
	switch s.status {
	case codes.Ok:
		o["status"] = object{"code": 1}
	case codes.Error:
		o["status"] = object{"code": 2, "message": s.said}
	}
	return o
}

// sendPoints sends the measurements since the start.
func (e *Exporter) sendPoints(ctx context.Context) error {
	if e.meter == nil {
		return nil
	}
	e.meter.mu.Lock()
	histograms := slices.Clone(e.meter.histograms)
	e.meter.mu.Unlock()
	list := e.meter.observe(ctx)
	for _, h := range histograms {
		if points := h.objects(e.meter.began); len(points) > 0 {
			list = append(list, object{"name": h.name, "unit": h.unit, "description": h.description,
				"histogram": object{"aggregationTemporality": 2, "dataPoints": points}})
		}
	}
	if len(list) == 0 {
		return nil
	}
	return e.pointsTo.post(ctx, object{"resourceMetrics": []object{{
		"resource":     object{"attributes": attributesOf(e.resource)},
		"scopeMetrics": []object{{"scope": object{"name": scope}, "metrics": list}},
	}}})
}

func (h *histogram) objects(began time.Time) []object {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []object
	for _, p := range h.points {
		counts := make([]string, 0, len(p.buckets))
		for _, n := range p.buckets {
			counts = append(counts, strconv.FormatUint(n, 10))
		}
		list = append(list, object{
			"attributes":        attributesOf(p.attrs.ToSlice()),
			"startTimeUnixNano": nanos(began), "timeUnixNano": nanos(time.Now()),
			"count": strconv.FormatUint(p.count, 10), "sum": p.sum, "min": p.min, "max": p.max,
			"bucketCounts": counts, "explicitBounds": h.bounds,
		})
	}
	return list
}
