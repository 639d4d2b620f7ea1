package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"filippo.io/age"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sluice-dev/sluice/charts"
	"github.com/sluice-dev/sluice/internal/backup"
)

// backupPage is how many resources are read at once.
const backupPage = 200

// BackupOptions describe a backup of a hub.
type BackupOptions struct {
	// Namespace whose resources are backed up; empty means all, as an embedded hub has no others.
	Namespace string
	// Change changes a resource before it is written, for instance what an embedded hub cannot have; may be nil.
	Change func(context.Context, *unstructured.Unstructured) error
	// Recipients can read the backup.
	Recipients []age.Recipient
	// Files are added under their names.
	Files []backup.File
	// Version of this Sluice.
	Version string

	// page is the number of resources that are read at once; zero means backupPage.
	page int64
}

// BackedUp describes a backup that was made.
type BackedUp struct {
	backup.Header
	// Resources in it.
	Resources int `json:"resources"`
}

// Backup writes all of Sluice's definitions and resources, as they were at one revision, to out, while the hub is in
// use. It reads page by page. The revision must not be compacted meanwhile: a backup that takes longer than five
// minutes may fail, and is then not complete.
func Backup(ctx context.Context, config *rest.Config, out io.Writer, o BackupOptions) (*BackedUp, error) {
	wanted, err := readCRDs(charts.CRDs)
	if err != nil {
		return nil, err
	}
	definitions, err := definitionsOf(config)
	if err != nil {
		return nil, err
	}
	resources, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for resources: %w", err)
	}
	first, err := resources.Resource(storedAs(wanted[0])).Namespace(o.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("read the hub's revision: %w", err)
	}
	id, err := Identity(ctx, config)
	if err != nil {
		return nil, err
	}
	made := &BackedUp{Header: backup.Header{Taken: time.Now().UTC(), Revision: first.GetResourceVersion(), Hub: id, Version: o.Version}}
	w, err := backup.NewWriter(out, o.Recipients, made.Header)
	if err != nil {
		return nil, err
	}
	for _, file := range o.Files {
		if err := w.File(file.Name, file.Content); err != nil {
			return nil, err
		}
	}
	for _, crd := range wanted {
		have, err := definitions.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("read definition %s: %w", crd.Name, err)
		}
		have.APIVersion, have.Kind, have.ResourceVersion = apiextensionsv1.SchemeGroupVersion.String(), "CustomResourceDefinition", ""
		encoded, err := json.Marshal(have)
		if err != nil {
			return nil, fmt.Errorf("encode definition %s: %w", crd.Name, err)
		}
		if err := w.Object(encoded); err != nil {
			return nil, err
		}
		n, err := o.backupAll(ctx, resources.Resource(storedAs(have)).Namespace(o.Namespace), made.Revision, w)
		if err != nil {
			return nil, fmt.Errorf("back up %s: %w", crd.Name, err)
		}
		made.Resources += n
	}
	return made, w.Close()
}

// storedAs returns the resource in the version in which the hub stores it.
func storedAs(crd *apiextensionsv1.CustomResourceDefinition) schema.GroupVersionResource {
	resource := schema.GroupVersionResource{Group: crd.Spec.Group, Resource: crd.Spec.Names.Plural}
	for _, version := range crd.Spec.Versions {
		if version.Storage {
			resource.Version = version.Name
		}
	}
	return resource
}

// backupAll writes all resources of a kind, as they were at a revision, and returns how many there are.
func (o BackupOptions) backupAll(ctx context.Context, resource dynamic.ResourceInterface, revision string, w *backup.Writer) (written int, err error) {
	size := cmp.Or(o.page, backupPage)
	page := metav1.ListOptions{Limit: size, ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	for {
		list, err := resource.List(ctx, page)
		if apierrors.IsResourceExpired(err) {
			return written, fmt.Errorf("the hub no longer has revision %s: the backup took too long; make it again when there is less load: %w", revision, err)
		}
		if err != nil {
			return written, err
		}
		for i := range list.Items {
			if o.Change != nil {
				if err := o.Change(ctx, &list.Items[i]); err != nil {
					return written, err
				}
			}
			list.Items[i].SetResourceVersion("")
			encoded, err := list.Items[i].MarshalJSON()
			if err != nil {
				return written, fmt.Errorf("encode %s: %w", list.Items[i].GetName(), err)
			}
			if err := w.Object(encoded); err != nil {
				return written, err
			}
			written++
		}
		if list.GetContinue() == "" {
			return written, nil
		}
		page = metav1.ListOptions{Limit: size, Continue: list.GetContinue()}
	}
}
