package hosted

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	commonutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Render returns the objects that the Helm chart in a folder installs as a release in a namespace, in the order of the
// names of its templates.
func Render(folder, release, namespace string, values map[string]any) ([]*unstructured.Unstructured, error) {
	loaded, err := loader.LoadDir(folder)
	if err != nil {
		return nil, err
	}
	top, err := commonutil.ToRenderValues(loaded, values, common.ReleaseOptions{Name: release, Namespace: namespace}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, top)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) != ".yaml" || strings.TrimSpace(files[name]) == "" {
			continue // notes and helpers
		}
		objects, err := parse([]byte(files[name]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, objects...)
	}
	return all, nil
}
