// Package pages reads long lists of Kubernetes objects page by page.
package pages

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Each calls do with every item of a list that matches the options, and ends with the first
// error, which it returns. The reader must be live, because a cache does not support pages. list
// names the kind and is not changed; an item may be kept.
func Each(ctx context.Context, reader client.Reader, list client.ObjectList, do func(client.Object) error, options ...client.ListOption) error {
	page := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		page := list.DeepCopyObject().(client.ObjectList)
		if err := reader.List(ctx, page, append(options[:len(options):len(options)], client.Limit(o.Limit), client.Continue(o.Continue))...); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
		return page, nil
	}
	return pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error { return do(o.(client.Object)) })
}
