package podrules

import (
	"slices"
	"strings"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// AgreedVariables has Variables and more, for the rules of Agreed. These also use the variable agreed, the annotations that
// Annotations returns. The repository of an image is its name as containerd reads it (github.com/distribution/reference),
// without tag and digest.
var AgreedVariables = slices.Concat(Variables, []Variable{
	{"images", "variables.containers.map(c, c.?image.orValue(''))"},
	{"named", "variables.images.map(i, i.lastIndexOf('@') > i.lastIndexOf('/') ? i.substring(0, i.lastIndexOf('@')) : i)" +
		".map(i, i.lastIndexOf(':') > i.lastIndexOf('/') ? i.substring(0, i.lastIndexOf(':')) : i)"},
	{"repositories", "variables.named.map(i, i.contains('/') && (i.split('/')[0].matches('[.:]') || i.split('/')[0] == 'localhost' || i.split('/')[0].lowerAscii() != i.split('/')[0]) ? i : 'docker.io/' + i)" +
		".map(i, i.startsWith('index.docker.io/') ? i.substring(6) : i)" +
		".map(i, i.startsWith('docker.io/') && !i.substring(10).contains('/') ? 'docker.io/library/' + i.substring(10) : i)"},
	{"foreign", "!('" + v1alpha1.AnnotationRegistries + "' in variables.agreed) ? [] : variables.repositories.filter(i, " +
		"!variables.agreed['" + v1alpha1.AnnotationRegistries + "'].split(',').exists(r, i == r || i.startsWith(r + '/')))"},
	{"undigested", "!('" + v1alpha1.AnnotationDigests + "' in variables.agreed) ? [] : variables.images.filter(i, !i.matches('@sha(256:[0-9a-f]{64}|512:[0-9a-f]{128})$'))"},
	{"class", "variables.spec.?runtimeClassName.orValue('')"},
})

// AgreedRule is a Rule with a CEL expression, Because, of the error message with the values.
type AgreedRule struct {
	Rule
	Because string
}

// Agreed are the rules that policies add for a namespace; see v1alpha1.WorkloadRules.
var Agreed = []AgreedRule{
	{Rule{"variables.foreign.size() == 0", "images come only from registries that were agreed"},
		"'images come only from ' + variables.agreed['" + v1alpha1.AnnotationRegistries + "'] + ': ' + variables.foreign[0] + ' is refused'"},
	{Rule{"variables.undigested.size() == 0", "images are named by their digest"},
		"'images are named by their digest (NAME@sha256:...): ' + variables.undigested[0] + ' is refused'"},
	{Rule{isAgreed(v1alpha1.AnnotationRuntimeClasses, "variables.class in %s"), "the runtime class is not among those that were agreed"},
		"'the runtime class is not among those that were agreed (' + variables.agreed['" + v1alpha1.AnnotationRuntimeClasses + "'] + '): ' + " +
			"(variables.class == '' ? 'a pod that names none' : variables.class) + ' is refused'"},
	{Rule{isAgreed(v1alpha1.AnnotationCapabilities, "variables.contexts.all(s, s.?capabilities.?add.orValue([]).all(c, c in %s))"), "containers add only capabilities that were agreed"},
		"'containers add only capabilities that were agreed: ' + variables.agreed['" + v1alpha1.AnnotationCapabilities + "']"},
}

// isAgreed returns a condition over the list of an annotation, which holds if there is no such annotation.
func isAgreed(annotation, condition string) string {
	return "!('" + annotation + "' in variables.agreed) || " + strings.ReplaceAll(condition, "%s", "variables.agreed['"+annotation+"'].split(',')")
}

// Annotations returns the annotations by which a cluster enforces rules of policies, all of them together; none if there
// are no rules.
func Annotations(rules ...v1alpha1.WorkloadRules) map[string]string {
	all := map[string]string{}
	for i := range rules {
		all = Both(all, annotationsOf(&rules[i]))
	}
	return all
}

func annotationsOf(r *v1alpha1.WorkloadRules) map[string]string {
	one := map[string]string{}
	if r.Digests {
		one[v1alpha1.AnnotationDigests] = "true"
	}
	for annotation, list := range map[string][]string{
		v1alpha1.AnnotationRegistries: r.Registries, v1alpha1.AnnotationRuntimeClasses: r.RuntimeClasses, v1alpha1.AnnotationCapabilities: r.Capabilities,
	} {
		if len(list) > 0 {
			one[annotation] = listed(list)
		}
	}
	return one
}

// Both returns the annotations that allow what both of two allow. Others than those of rules are left out.
func Both(a, b map[string]string) map[string]string {
	both := map[string]string{}
	for _, annotation := range []string{
		v1alpha1.AnnotationRegistries, v1alpha1.AnnotationDigests, v1alpha1.AnnotationRuntimeClasses, v1alpha1.AnnotationCapabilities,
	} {
		one, isOne := a[annotation]
		other, isOther := b[annotation]
		switch {
		case isOne && isOther:
			both[annotation] = listed(common(annotation, entries(one), entries(other)))
		case isOne:
			both[annotation] = one
		case isOther:
			both[annotation] = other
		}
	}
	return both
}

// common returns the entries that two lists have in common; of two registries, one of which includes the other, the
// narrower one.
func common(annotation string, a, b []string) (both []string) {
	for _, one := range a {
		for _, other := range b {
			switch {
			case one == other || annotation == v1alpha1.AnnotationRegistries && strings.HasPrefix(one, other+"/"):
				both = append(both, one)
			case annotation == v1alpha1.AnnotationRegistries && strings.HasPrefix(other, one+"/"):
				both = append(both, other)
			}
		}
	}
	return both
}

func entries(value string) []string {
	if value == v1alpha1.NothingAllowed {
		return nil
	}
	return strings.Split(value, ",")
}

// listed returns the value of an annotation: the entries sorted, each once.
func listed(list []string) string {
	var all []string
	for _, entry := range list {
		if entry == "index.docker.io" || strings.HasPrefix(entry, "index.docker.io/") {
			entry = strings.TrimPrefix(entry, "index.")
		}
		if entry != v1alpha1.CapabilityNone {
			all = append(all, entry)
		}
	}
	if len(all) == 0 {
		return v1alpha1.NothingAllowed
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}
