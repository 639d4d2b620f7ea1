package reader

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	resourcesv1 "github.com/sluice-dev/sluice/api/resources/v1"
	"github.com/sluice-dev/sluice/api/v1alpha1"
)

const (
	// mostNames bounds the resources and the storage classes of an answer, and of nodes; mostKinds an answer's
	// architectures and operating systems.
	mostNames, mostKinds = 64, 16
	// mostHoles bounds the holes of an answer and their resources, mostNodes the nodes that one stands for.
	mostHoles, mostNodes = 8, 1 << 20
	// mostCores and mostUnits bound a quantity, so that sums over all clusters are exact.
	mostCores, mostUnits = 1 << 30, 1 << 50
)

// readingOf checks an answer. The error names the field and the reason. What a server claims within these
// limits is believed; MemberCluster.spec.sell bounds it.
func readingOf(answer *resourcesv1.ReadResponse) (Reading, error) {
	has, err := amountsOf("resources", answer.GetResources())
	if err != nil {
		return Reading{}, err
	}
	used, err := amountsOf("used", answer.GetUsed())
	if err != nil {
		return Reading{}, err
	}
	for _, list := range []struct {
		field string
		names []string
		most  int
		check func(string) []string
	}{
		{"storage_classes", answer.GetStorageClasses(), mostNames, validation.IsDNS1123Subdomain},
		{"architectures", answer.GetArchitectures(), mostKinds, validation.IsDNS1123Label},
		{"operating_systems", answer.GetOperatingSystems(), mostKinds, validation.IsDNS1123Label},
	} {
		if len(list.names) > list.most {
			return Reading{}, fmt.Errorf("%s: %d, and at most %d are allowed", list.field, len(list.names), list.most)
		}
		for _, name := range list.names {
			if wrong := list.check(name); wrong != nil {
				return Reading{}, fmt.Errorf("%s: %s: %s", list.field, quoted(name), wrong[0])
			}
		}
	}
	holes, err := holesOf(answer.GetHoles(), has)
	if err != nil {
		return Reading{}, fmt.Errorf("holes.%w", err)
	}
	return Reading{
		Holes: holes, Capacity: has, Allocatable: has, Foreign: used, StorageClasses: sorted(answer.GetStorageClasses()),
		Architectures: sorted(answer.GetArchitectures()), OperatingSystems: sorted(answer.GetOperatingSystems()),
	}, nil
}

// holesOf checks the holes of a cluster that has some resources; nil for none.
func holesOf(answer *resourcesv1.Holes, has corev1.ResourceList) (*v1alpha1.Holes, error) {
	if answer == nil {
		return nil, nil
	}
	of := func(field string, texts map[string]string) (corev1.ResourceList, error) {
		amounts, err := amountsOf(field, texts)
		if err != nil {
			return nil, err
		}
		if len(amounts) > mostHoles {
			return nil, fmt.Errorf("%s: %d resources, and at most %d are allowed", field, len(amounts), mostHoles)
		}
		for name := range amounts {
			if _, is := has[name]; !is || name == corev1.ResourcePods {
				return nil, fmt.Errorf("%s: %s: is not among the resources that count", field, quoted(string(name)))
			}
		}
		return amounts, nil
	}
	free, err := of("free", answer.GetFree())
	if err != nil {
		return nil, err
	}
	if len(answer.GetNodes()) > mostHoles {
		return nil, fmt.Errorf("nodes: %d, and at most %d are allowed", len(answer.GetNodes()), mostHoles)
	}
	holes := &v1alpha1.Holes{Free: free}
	for i, nodes := range answer.GetNodes() {
		field := fmt.Sprintf("nodes[%d].", i)
		amounts, err := of(field+"free", nodes.GetFree())
		if err != nil {
			return nil, err
		}
		for name := range amounts {
			if _, is := free[name]; !is {
				return nil, fmt.Errorf("%sfree: %s: is not in holes.free", field, quoted(string(name)))
			}
		}
		if nodes.GetCount() < 1 || nodes.GetCount() > mostNodes {
			return nil, fmt.Errorf("%scount: %d is not between 1 and %d", field, nodes.GetCount(), mostNodes)
		}
		holes.Nodes = append(holes.Nodes, v1alpha1.NodesFree{Count: nodes.GetCount(), Free: amounts})
	}
	return holes, nil
}

func amountsOf(field string, texts map[string]string) (corev1.ResourceList, error) {
	if len(texts) > mostNames {
		return nil, fmt.Errorf("%s: %d, and at most %d are allowed", field, len(texts), mostNames)
	}
	amounts := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if wrong := validation.IsQualifiedName(name); wrong != nil {
			return nil, fmt.Errorf("%s: %s: %s", field, quoted(name), wrong[0])
		}
		most := mostOf(corev1.ResourceName(name))
		amount, err := resource.ParseQuantity(texts[name])
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %s: %s is no quantity", field, name, quoted(texts[name]))
		case amount.Sign() < 0 || amount.CmpInt64(most) > 0:
			return nil, fmt.Errorf("%s: %s: %s is not between 0 and %d", field, name, quoted(texts[name]), most)
		}
		amounts[corev1.ResourceName(name)] = amount
	}
	return amounts, nil
}

// quoted quotes the beginning of a text from outside.
func quoted(text string) string {
	const shown = 40
	if len(text) > shown {
		text = strings.ToValidUTF8(text[:shown], "") + "…"
	}
	return fmt.Sprintf("%q", text)
}

func sorted(names []string) []string {
	if len(names) == 0 {
		return nil
	}
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}
