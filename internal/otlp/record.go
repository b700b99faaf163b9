package otlp

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
)

// OpenTelemetry's own SDK does far more than we need, and adds a megabyte. This is
// the part that we need: spans that are all recorded, histograms, and observed integers.

// A tracer keeps ended spans until they are sent.
type tracer struct {
	embedded.Tracer

	mu    sync.Mutex
	ended []*span
	lost  int
	full  chan struct{} // receives a value when it is time to send
}

// Limits of the data that waits to be sent.
const (
	batchSize = 512
	maxEnded  = 4096
)

func newTracer() *tracer { return &tracer{full: make(chan struct{}, 1)} }

// A tracerProvider returns the same tracer for all names.
type tracerProvider struct {
	embedded.TracerProvider
	tracer *tracer
}

// Tracer implements [trace.TracerProvider].
func (p tracerProvider) Tracer(string, ...trace.TracerOption) trace.Tracer { return p.tracer }

// Start implements [trace.Tracer].
func (t *tracer) Start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	cfg := trace.NewSpanStartConfig(opts...)
	parent := trace.SpanContextFromContext(ctx)
	if cfg.NewRoot() {
		parent = trace.SpanContext{}
	}
	s := &span{tracer: t, name: name, parent: parent.SpanID(), kind: trace.ValidateSpanKind(cfg.SpanKind()), began: cfg.Timestamp(), attrs: cfg.Attributes()}
	if s.began.IsZero() {
		s.began = time.Now()
	}
	is := trace.SpanContextConfig{TraceID: parent.TraceID(), TraceFlags: trace.FlagsSampled, TraceState: parent.TraceState()}
	if !parent.IsValid() {
		s.parent = trace.SpanID{}
		rand.Read(is.TraceID[:])
	}
	rand.Read(is.SpanID[:])
	s.context = trace.NewSpanContext(is)
	return trace.ContextWithSpan(ctx, s), s
}

// drain returns the ended spans.
func (t *tracer) drain() []*span {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.ended
	t.ended = nil
	return list
}

// A span is an operation that is running or has ended.
type span struct {
	embedded.Span

	tracer  *tracer
	name    string
	context trace.SpanContext
	parent  trace.SpanID
	kind    trace.SpanKind
	began   time.Time

	mu     sync.Mutex
	attrs  []attribute.KeyValue
	status codes.Code
	said   string
	ended  time.Time
}

// End implements [trace.Span].
func (s *span) End(opts ...trace.SpanEndOption) {
	cfg := trace.NewSpanEndConfig(opts...)
	s.mu.Lock()
	again := !s.ended.IsZero()
	if s.ended = cfg.Timestamp(); s.ended.IsZero() {
		s.ended = time.Now()
	}
	s.mu.Unlock()
	if again {
		return
	}
	t := s.tracer
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ended) >= maxEnded {
		t.lost++ // the collector does not accept them
		return
	}
	t.ended = append(t.ended, s)
	if len(t.ended) >= batchSize {
		select {
		case t.full <- struct{}{}:
		default:
		}
	}
}

// SetAttributes implements [trace.Span].
func (s *span) SetAttributes(list ...attribute.KeyValue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range list {
		if i := slices.IndexFunc(s.attrs, func(b attribute.KeyValue) bool { return b.Key == a.Key }); i >= 0 {
			s.attrs[i] = a
		} else {
			s.attrs = append(s.attrs, a)
		}
	}
}

// SetStatus implements [trace.Span].
func (s *span) SetStatus(code codes.Code, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.said = code, text
}

// We do not use the rest of [trace.Span]; other holders of the span may call it.

func (s *span) AddEvent(string, ...trace.EventOption)   {}
func (s *span) AddLink(trace.Link)                      {}
func (s *span) RecordError(error, ...trace.EventOption) {}
func (s *span) IsRecording() bool                       { return true }
func (s *span) SpanContext() trace.SpanContext          { return s.context }
func (s *span) TracerProvider() trace.TracerProvider    { return tracerProvider{tracer: s.tracer} }
func (s *span) SetName(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.name = name
}

// A meter keeps histograms, and calls the callbacks of observable counters and gauges of
// integers; other instruments measure nothing.
type meter struct {
	metricnoop.Meter

	mu         sync.Mutex
	began      time.Time
	histograms []*histogram
	callbacks  map[*registration]metric.Callback
}

// A meterProvider returns the same meter for all names.
type meterProvider struct {
	metricnoop.MeterProvider
	meter *meter
}

// Meter implements [metric.MeterProvider].
func (p meterProvider) Meter(string, ...metric.MeterOption) metric.Meter { return p.meter }

// Float64Histogram implements [metric.Meter].
func (m *meter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	cfg := metric.NewFloat64HistogramConfig(opts...)
	return floats{histogram: m.add(name, cfg.Unit(), cfg.Description(), cfg.ExplicitBucketBoundaries())}, nil
}

// Int64Histogram implements [metric.Meter].
func (m *meter) Int64Histogram(name string, opts ...metric.Int64HistogramOption) (metric.Int64Histogram, error) {
	cfg := metric.NewInt64HistogramConfig(opts...)
	return ints{histogram: m.add(name, cfg.Unit(), cfg.Description(), cfg.ExplicitBucketBoundaries())}, nil
}

func (m *meter) add(name, unit, description string, bounds []float64) *histogram {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.histograms {
		if h.name == name {
			return h // from another conversation
		}
	}
	h := &histogram{name: name, unit: unit, description: description, bounds: bounds, points: map[attribute.Distinct]*point{}}
	m.histograms = append(m.histograms, h)
	return h
}

type histogram struct {
	name, unit, description string
	bounds                  []float64

	mu     sync.Mutex
	points map[attribute.Distinct]*point
}

// A point holds the measurements with the same attributes.
type point struct {
	attrs         attribute.Set
	count         uint64
	sum, min, max float64
	buckets       []uint64
}

// maxPoints limits the attribute combinations of one histogram.
const maxPoints = 2000

func (h *histogram) record(v float64, attrs attribute.Set) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.points[attrs.Equivalent()]
	if p == nil {
		if len(h.points) >= maxPoints {
			return
		}
		p = &point{attrs: attrs, min: v, max: v, buckets: make([]uint64, len(h.bounds)+1)}
		h.points[attrs.Equivalent()] = p
	}
	i, _ := slices.BinarySearch(h.bounds, v)
	p.buckets[i]++
	p.count++
	p.sum += v
	p.min, p.max = min(p.min, v), max(p.max, v)
}

type floats struct {
	metricnoop.Float64Histogram
	*histogram
}

// Record implements [metric.Float64Histogram].
func (f floats) Record(_ context.Context, v float64, opts ...metric.RecordOption) {
	f.record(v, metric.NewRecordConfig(opts).Attributes())
}

type ints struct {
	metricnoop.Int64Histogram
	*histogram
}

// Record implements [metric.Int64Histogram].
func (i ints) Record(_ context.Context, v int64, opts ...metric.RecordOption) {
	i.record(float64(v), metric.NewRecordConfig(opts).Attributes())
}

// An observable is a counter or a gauge whose values come from a callback.
type observable struct {
	name, unit, description string
	counts                  bool
}

func (o *observable) self() *observable { return o }

type counter struct {
	metricnoop.Int64ObservableCounter
	*observable
}

type gauge struct {
	metricnoop.Int64ObservableGauge
	*observable
}

// Int64ObservableCounter implements [metric.Meter].
func (m *meter) Int64ObservableCounter(name string, opts ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	cfg := metric.NewInt64ObservableCounterConfig(opts...)
	return counter{observable: &observable{name, cfg.Unit(), cfg.Description(), true}}, nil
}

// Int64ObservableGauge implements [metric.Meter].
func (m *meter) Int64ObservableGauge(name string, opts ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	cfg := metric.NewInt64ObservableGaugeConfig(opts...)
	return gauge{observable: &observable{name, cfg.Unit(), cfg.Description(), false}}, nil
}

type registration struct {
	metricnoop.Registration
	m *meter
}

// RegisterCallback implements [metric.Meter].
func (m *meter) RegisterCallback(f metric.Callback, _ ...metric.Observable) (metric.Registration, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &registration{m: m}
	if m.callbacks == nil {
		m.callbacks = map[*registration]metric.Callback{}
	}
	m.callbacks[r] = f
	return r, nil
}

// Unregister implements [metric.Registration].
func (r *registration) Unregister() error {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	delete(r.m.callbacks, r)
	return nil
}

// An observer collects the values of one export.
type observer struct {
	metricnoop.Observer
	m      *meter
	order  []*observable
	points map[*observable][]object
}

// ObserveInt64 implements [metric.Observer].
func (x *observer) ObserveInt64(i metric.Int64Observable, v int64, opts ...metric.ObserveOption) {
	known, ok := i.(interface{ self() *observable })
	if !ok {
		return
	}
	o, set := known.self(), metric.NewObserveConfig(opts).Attributes()
	if x.points[o] == nil {
		x.order = append(x.order, o)
	}
	x.points[o] = append(x.points[o], object{"attributes": attributesOf(set.ToSlice()), "startTimeUnixNano": nanos(x.m.began), "timeUnixNano": nanos(time.Now()), "asInt": strconv.FormatInt(v, 10)})
}

// observe calls the callbacks and returns their metrics.
func (m *meter) observe(ctx context.Context) (list []object) {
	m.mu.Lock()
	callbacks := slices.Collect(maps.Values(m.callbacks))
	m.mu.Unlock()
	x := &observer{m: m, points: map[*observable][]object{}}
	for _, f := range callbacks {
		f(ctx, x) // a failure is not the collector's; its metrics are missing
	}
	for _, o := range x.order {
		kind, data := "gauge", object{"dataPoints": x.points[o]}
		if o.counts {
			kind, data["isMonotonic"], data["aggregationTemporality"] = "sum", true, 2
		}
		list = append(list, object{"name": o.name, "unit": o.unit, "description": o.description, kind: data})
	}
	return list
}
