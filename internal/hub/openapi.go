package hub

import (
	"fmt"
	"net/http"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// openAPI serves the API's OpenAPI documents, by which kubectl explains and validates resources. It builds them for
// each request, from the definitions as they are then. The API server's own controllers build them at each start and
// at each change of a definition, though most hubs are never asked: that is a fifth of a start's processor time.
type openAPI struct {
	api         *genericserver.APIServerHandler
	routes      routes.OpenAPI
	definitions listers.CustomResourceDefinitionLister
}

// serveOpenAPI makes a server answer below /openapi. Its configuration must skip the installation of the controllers.
func serveOpenAPI(server *apiserver.CustomResourceDefinitions, config genericserver.Config) {
	api := server.GenericAPIServer.Handler
	o := &openAPI{
		api:         api,
		routes:      routes.OpenAPI{Config: config.OpenAPIConfig, V3Config: config.OpenAPIV3Config},
		definitions: server.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister(),
	}
	api.NonGoRestfulMux.HandlePrefix("/openapi/", o)
}

// ServeHTTP implements http.Handler.
func (o *openAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	definitions, err := o.definitions.List(labels.Everything())
	documents := mux.NewPathRecorderMux("openapi")
	switch {
	case err != nil:
	case strings.HasPrefix(r.URL.Path, "/openapi/v3"):
		err = o.installV3(documents, definitions)
	default:
		err = o.installV2(documents, definitions)
	}
	if err != nil {
		http.Error(w, fmt.Sprintf("build the OpenAPI documents: %v", err), http.StatusInternalServerError)
		return
	}
	documents.ServeHTTP(w, r)
}

// installV3 installs a document for each version of each group.
func (o *openAPI) installV3(documents *mux.PathRecorderMux, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	specs := map[schema.GroupVersion][]*spec3.OpenAPI{}
	err := eachServed(definitions, func(crd *apiextensionsv1.CustomResourceDefinition, version schema.GroupVersion) error {
		built, err := builder.BuildOpenAPIV3(crd, version.Version, builder.Options{IncludeSelectableFields: true})
		specs[version] = append(specs[version], built)
		return err
	})
	if err != nil {
		return err
	}
	service := o.routes.InstallV3(o.api.GoRestfulContainer, documents)
	for version, built := range specs {
		merged, err := builder.MergeSpecsV3(built...)
		if err != nil {
			return err
		}
		service.UpdateGroupVersion("apis/"+version.String(), merged)
	}
	return nil
}

// installV2 installs the one document for all.
func (o *openAPI) installV2(documents *mux.PathRecorderMux, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	var specs []*spec.Swagger
	err := eachServed(definitions, func(crd *apiextensionsv1.CustomResourceDefinition, version schema.GroupVersion) error {
		built, err := builder.BuildOpenAPIV2(crd, version.Version, builder.Options{V2: true, IncludeSelectableFields: true})
		if err == nil {
			built.Definitions = handler.PruneDefaults(built.Definitions) // as those of the static document are
		}
		specs = append(specs, built)
		return err
	})
	if err != nil {
		return err
	}
	service, static := o.routes.InstallV2(o.api.GoRestfulContainer, documents)
	merged, err := builder.MergeSpecs(static, specs...)
	if err != nil {
		return err
	}
	return service.UpdateSpec(merged)
}

// eachServed calls do for each served version of the definitions that are established, until an error.
func eachServed(definitions []*apiextensionsv1.CustomResourceDefinition, do func(*apiextensionsv1.CustomResourceDefinition, schema.GroupVersion) error) error {
	for _, crd := range definitions {
		if establishedCondition(crd) == nil {
			continue
		}
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			if err := do(crd, schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}); err != nil {
				return fmt.Errorf("definition %s: %w", crd.Name, err)
			}
		}
	}
	return nil
}
