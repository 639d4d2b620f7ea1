// Package charts renders Helm charts. It asks nobody: no cluster, registry or name server.
package charts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/loader/archive"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/internal/jsonschema"
)

const (
	// mostUnpacked limits the files of a chart together, mostRendered what a rendering gives, in bytes.
	mostUnpacked = 16 << 20
	mostRendered = 4 << 20
)

// Chart is a Helm chart of type application. It never changes and is safe for concurrent use.
type Chart struct {
	// Name and Version of the chart.
	Name, Version string

	files  []*archive.BufferedFile
	values map[string]any
	schema map[string]any
}

// Digest returns the digest of an archive, sha256: and 64 hexadecimal digits.
func Digest(archive []byte) string {
	sum := sha256.Sum256(archive)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Open reads the archive of a chart that gives objects of one namespace.
func Open(packed []byte) (*Chart, error) {
	c, err := Read(packed)
	if err != nil {
		return nil, err
	}
	loaded, err := c.load()
	if err != nil {
		return nil, err
	}
	if loaded.Metadata.Type == "library" {
		return nil, fmt.Errorf("%s is a library, which installs nothing", c.Name)
	}
	if crds := loaded.CRDObjects(); len(crds) > 0 {
		return nil, fmt.Errorf("%s: custom resource definitions belong to a whole cluster", crds[0].Filename)
	}
	return c, nil
}

// Read reads the archive of any chart, also one that is for a whole cluster.
func Read(packed []byte) (*Chart, error) {
	files, err := archive.LoadArchiveFiles(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	size := 0
	for _, file := range files {
		size += len(file.Data)
	}
	if size > mostUnpacked {
		return nil, fmt.Errorf("unpacked it has %d bytes, more than %d", size, mostUnpacked)
	}
	c := &Chart{files: files}
	loaded, err := c.load()
	if err != nil {
		return nil, err
	}
	c.Name, c.Version, c.values = loaded.Metadata.Name, loaded.Metadata.Version, loaded.Values
	if len(loaded.Schema) > 0 {
		if err := utiljson.Unmarshal(loaded.Schema, &c.schema); err != nil {
			return nil, fmt.Errorf("values.schema.json: %w", err)
		}
	}
	return c, nil
}

// load returns the chart as Helm sees it. Rendering changes it, so that each rendering has its own.
func (c *Chart) load() (*chart.Chart, error) {
	own := make([]*archive.BufferedFile, len(c.files))
	for i, file := range c.files {
		copied := *file
		own[i] = &copied
	}
	return loader.LoadFiles(own)
}

// Parameter is a value of a chart that consumers may set.
type Parameter struct {
	// Schema is its JSON Schema. It has a default if the chart, or its schema, has one.
	Schema map[string]any
	// Required reports that the chart needs the value, and has none itself.
	Required bool
}

// Parameter describes a value at the top level of the chart's values. The error says why consumers
// cannot set it.
func (c *Chart) Parameter(name string) (*Parameter, error) {
	if c.schema == nil {
		return nil, errors.New("the chart has no values.schema.json that describes it; the plan may describe a parameter itself, and use it in values")
	}
	properties, _ := c.schema["properties"].(map[string]any)
	described, ok := properties[name].(map[string]any)
	if !ok {
		return nil, errors.New("the chart's values.schema.json does not describe it")
	}
	if refers(described) {
		return nil, errors.New("the chart's values.schema.json describes it with a $ref, which cannot be shown alone")
	}
	described = maps.Clone(described)
	if value := c.values[name]; value != nil {
		described["default"] = value
	}
	_, known := described["default"]
	required, _ := c.schema["required"].([]any)
	return &Parameter{Schema: described, Required: !known && slices.Contains(required, any(name))}, nil
}

// refers reports whether a schema contains a reference.
func refers(node any) bool {
	switch node := node.(type) {
	case map[string]any:
		if _, ok := node["$ref"].(string); ok {
			return true
		}
		return slices.ContainsFunc(slices.Collect(maps.Values(node)), refers)
	case []any:
		return slices.ContainsFunc(node, refers)
	}
	return false
}

// Release is one installation of a chart.
type Release struct {
	// Name of the release, and the namespace that it is in.
	Name, Namespace string
	// Values over those of the chart.
	Values map[string]any
}

// Render returns the objects of a release, in the order of the chart's files. Tests of the chart and
// its notes are left out. It is a function of its arguments: functions of templates that ask others
// return nothing, and a chart with functions that are random or tell the time is refused if they
// change an object, see steady. The error contains values.
func (c *Chart) Render(r Release) ([]*unstructured.Unstructured, error) {
	first, err := c.render(r, instants[0])
	if err != nil {
		return nil, err
	}
	second, err := c.render(r, instants[1])
	if err != nil {
		return nil, err
	}
	for name, content := range first {
		if second[name] != content {
			return nil, fmt.Errorf("%s: differs each time it is rendered, because of a function such as randAlphaNum or now; set the value that it generates", name)
		}
	}
	var objects []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(first)) {
		of, err := objectsOf(name, first[name])
		if err != nil {
			return nil, err
		}
		objects = append(objects, of...)
	}
	return objects, nil
}

// render returns the files as they are rendered at a time, by their paths.
func (c *Chart) render(r Release, at time.Time) (map[string]string, error) {
	loaded, err := c.load()
	if err != nil {
		return nil, err
	}
	values := copied(r.Values).(map[string]any)
	if err := chartutil.ProcessDependencies(loaded, values); err != nil {
		return nil, fmt.Errorf("choose the dependencies: %w", err)
	}
	// Helm's own check of the schemas would fetch what they refer to.
	top, err := commonutil.ToRenderValuesWithSchemaValidation(loaded, values,
		common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}, nil, true)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	all, err := top.Table("Values")
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	if err := check(loaded, all); err != nil {
		return nil, err
	}
	left := budget{items: mostCounted, bytes: mostRendered}
	functions := left.functions()
	maps.Copy(functions, steady(at))
	files, err := engine.Engine{CustomTemplateFuncs: functions}.RenderWithContext(context.Background(), loaded, top)
	if err != nil {
		return nil, err
	}
	size := 0
	for name, content := range files {
		if size += len(content); size > mostRendered {
			return nil, fmt.Errorf("its templates give more than %d bytes", mostRendered)
		}
		base := path.Base(name)
		if base == "NOTES.txt" || strings.HasPrefix(base, "_") || strings.TrimSpace(content) == "" {
			delete(files, name)
		}
	}
	return files, nil
}

// copied returns a deep copy of a JSON value.
func copied(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for name, one := range value {
			out[name] = copied(one)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, one := range value {
			out[i] = copied(one)
		}
		return out
	}
	return value
}

// check checks the values of a chart and its dependencies against their schemas.
func check(of *chart.Chart, values map[string]any) error {
	if len(of.Schema) > 0 {
		schema, err := jsonschema.CompileTrusted(of.Schema) // as its templates are
		if err != nil {
			return fmt.Errorf("values.schema.json of %s: %w", of.Name(), err)
		}
		document, err := json.Marshal(values)
		if err != nil {
			return fmt.Errorf("values: %w", err)
		}
		plain, err := jsonschema.Decode(document)
		if err != nil {
			return fmt.Errorf("values: %w", err)
		}
		if v := schema.Validate(plain); v != nil {
			if v.Unknown {
				v.Message = "is not a value of the chart"
			}
			return fmt.Errorf("values%s of %s: %s", v.Path, of.Name(), v.Message)
		}
	}
	for _, dependency := range of.Dependencies() {
		if below, ok := values[dependency.Name()].(map[string]any); ok {
			if err := check(dependency, below); err != nil {
				return err
			}
		}
	}
	return nil
}

// objectsOf returns the objects in a rendered file.
func objectsOf(name, content string) ([]*unstructured.Unstructured, error) {
	documents := releaseutil.SplitManifests(content)
	keys := slices.Collect(maps.Keys(documents))
	slices.SortFunc(keys, func(a, b string) int {
		if releaseutil.BySplitManifestsOrder([]string{a, b}).Less(0, 1) {
			return -1
		}
		return 1
	})
	var objects []*unstructured.Unstructured
	for _, key := range keys {
		document, err := yaml.YAMLToJSONStrict([]byte(documents[key]))
		if err != nil {
			return nil, fmt.Errorf("%s: is not YAML: %w", name, err)
		}
		if string(document) == "null" {
			continue
		}
		content := map[string]any{}
		if err := utiljson.Unmarshal(document, &content); err != nil {
			return nil, fmt.Errorf("%s: is not a Kubernetes object: %w", name, err)
		}
		o := &unstructured.Unstructured{Object: content}
		hook, isHook := o.GetAnnotations()[release.HookAnnotation]
		switch {
		case o.GetKind() == "" || o.GetAPIVersion() == "":
			return nil, fmt.Errorf("%s: has no apiVersion and kind", name)
		case isHook && onlyTests(hook):
		case isHook:
			return nil, fmt.Errorf("%s: %s %s is a %s hook; hooks of charts are not run, but those of the plan's bindings are", name, o.GetKind(), o.GetName(), hook)
		default:
			objects = append(objects, o)
		}
	}
	return objects, nil
}

// onlyTests reports whether the events of a hook are those of helm test.
func onlyTests(events string) bool {
	for event := range strings.SplitSeq(events, ",") {
		if !slices.Contains([]string{"test", "test-success", "test-failure"}, strings.TrimSpace(event)) {
			return false
		}
	}
	return true
}
