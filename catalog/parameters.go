package catalog

import (
	"bytes"
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// ApplicationOf returns the application that an instance's parameters name, or "". The
// schemas of plans without that parameter refuse it.
func ApplicationOf(parameters *runtime.RawExtension) string {
	if parameters == nil || !bytes.Contains(parameters.Raw, []byte(`"application"`)) {
		return ""
	}
	var given struct {
		Application string `json:"application"`
	}
	if json.Unmarshal(parameters.Raw, &given) != nil {
		return ""
	}
	return given.Application
}

// OnlyApplication returns parameters that contain nothing except the application's name;
// nil if none is named.
func OnlyApplication(parameters *runtime.RawExtension) *runtime.RawExtension {
	application := ApplicationOf(parameters)
	if application == "" {
		return nil
	}
	kept, err := json.Marshal(map[string]string{"application": application})
	if err != nil {
		return nil // cannot happen: a string always encodes
	}
	return &runtime.RawExtension{Raw: kept}
}
