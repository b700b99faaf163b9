// Package otlp sends OpenTelemetry's spans and metrics to a collector, as JSON over
// HTTP, configured by the variables that the specification names. The exporters of
// OpenTelemetry itself link protobuf and gRPC, which would double what the command
// weighs; collectors take JSON at the same address.
//
// It opens no connection before there is something to send, and a collector that
// does not answer delays nothing but [Exporter.Shutdown], by its time limit.
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
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// An Exporter is where spans and metrics go. Its providers are nil if they are not
// configured.
type Exporter struct {
	Traces  trace.TracerProvider
	Metrics metric.MeterProvider

	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
	limit   time.Duration
}

// FromEnv returns what the environment asks for, nil if that is nothing. Version is
// that of the service.
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
	attrs := []attribute.KeyValue{attribute.String("service.name", name), attribute.String("service.version", version)}
	given, err := pairs("OTEL_RESOURCE_ATTRIBUTES", getenv)
	if err != nil {
		return nil, err
	}
	for _, p := range given {
		attrs = append(attrs, attribute.String(p[0], p[1]))
	}
	res := resource.NewSchemaless(attrs...)
	e := &Exporter{limit: 10 * time.Second}
	if traces != nil {
		e.limit = traces.limit
		e.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithBatcher(traces))
		e.Traces = e.traces
	}
	if metrics != nil {
		e.limit = max(e.limit, metrics.limit)
		e.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithResource(res), sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metricsTo{metrics})))
		e.Metrics = e.metrics
	}
	return e, nil
}

// Shutdown sends what is left.
func (e *Exporter) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.limit)
	defer cancel()
	var errs []error
	if e.traces != nil {
		errs = append(errs, e.traces.Shutdown(ctx))
	}
	if e.metrics != nil {
		errs = append(errs, e.metrics.Shutdown(ctx))
	}
	return errors.Join(errs...)
}

// A target is one address of a collector.
type target struct {
	url    string
	header http.Header
	limit  time.Duration
	client *http.Client
}

// endpoint reads the variables of one signal; nil says that it is not asked for.
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

// pairs reads a variable of the form "key=value,key=value", values escaped as in an
// address.
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

// The JSON of the protocol: numbers of 64 bits are strings, ids are hexadecimal.

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
	return object{"stringValue": v.Emit()}
}

func nanos(t time.Time) string { return strconv.FormatInt(t.UnixNano(), 10) }

// ExportSpans implements [sdktrace.SpanExporter].
func (t *target) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	var list []object
	for _, s := range spans {
		o := object{
			"traceId": s.SpanContext().TraceID().String(), "spanId": s.SpanContext().SpanID().String(),
			"name": s.Name(), "kind": int(s.SpanKind()),
			"startTimeUnixNano": nanos(s.StartTime()), "endTimeUnixNano": nanos(s.EndTime()),
			"attributes": attributesOf(s.Attributes()),
		}
		if s.Parent().SpanID().IsValid() {
			o["parentSpanId"] = s.Parent().SpanID().String()
		}
		if state := s.SpanContext().TraceState().String(); state != "" {
			o["traceState"] = state
		}
		switch status := s.Status(); status.Code {
		case codes.Ok:
			o["status"] = object{"code": 1}
		case codes.Error:
			o["status"] = object{"code": 2, "message": status.Description}
		}
		list = append(list, o)
	}
	scope := object{"name": spans[0].InstrumentationScope().Name}
	return t.post(ctx, object{"resourceSpans": []object{{
		"resource":   object{"attributes": attributesOf(spans[0].Resource().Attributes())},
		"scopeSpans": []object{{"scope": scope, "spans": list}},
	}}})
}

// Shutdown implements [sdktrace.SpanExporter].
func (t *target) Shutdown(context.Context) error {
	t.client.CloseIdleConnections()
	return nil
}

// metricsTo sends metrics to a target.
type metricsTo struct{ *target }

func (m metricsTo) Temporality(sdkmetric.InstrumentKind) metricdata.Temporality {
	return metricdata.CumulativeTemporality
}

func (m metricsTo) Aggregation(kind sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(kind)
}

func (m metricsTo) ForceFlush(context.Context) error { return nil }

// Export implements [sdkmetric.Exporter]. We measure histograms only.
func (m metricsTo) Export(ctx context.Context, rm *metricdata.ResourceMetrics) error {
	var scopes []object
	for _, s := range rm.ScopeMetrics {
		var list []object
		for _, x := range s.Metrics {
			var points []object
			switch data := x.Data.(type) {
			case metricdata.Histogram[int64]:
				points = pointsOf(data.DataPoints)
			case metricdata.Histogram[float64]:
				points = pointsOf(data.DataPoints)
			}
			if len(points) > 0 {
				list = append(list, object{"name": x.Name, "unit": x.Unit, "description": x.Description,
					"histogram": object{"aggregationTemporality": 2, "dataPoints": points}})
			}
		}
		if len(list) > 0 {
			scopes = append(scopes, object{"scope": object{"name": s.Scope.Name}, "metrics": list})
		}
	}
	if len(scopes) == 0 {
		return nil
	}
	return m.post(ctx, object{"resourceMetrics": []object{{
		"resource":     object{"attributes": attributesOf(rm.Resource.Attributes())},
		"scopeMetrics": scopes,
	}}})
}

func pointsOf[N int64 | float64](points []metricdata.HistogramDataPoint[N]) []object {
	var list []object
	for _, p := range points {
		counts := make([]string, 0, len(p.BucketCounts))
		for _, n := range p.BucketCounts {
			counts = append(counts, strconv.FormatUint(n, 10))
		}
		o := object{
			"attributes":        attributesOf(p.Attributes.ToSlice()),
			"startTimeUnixNano": nanos(p.StartTime), "timeUnixNano": nanos(p.Time),
			"count": strconv.FormatUint(p.Count, 10), "sum": float64(p.Sum),
			"bucketCounts": counts, "explicitBounds": p.Bounds,
		}
		if v, ok := p.Min.Value(); ok {
			o["min"] = float64(v)
		}
		if v, ok := p.Max.Value(); ok {
			o["max"] = float64(v)
		}
		list = append(list, o)
	}
	return list
}
