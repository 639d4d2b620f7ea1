package workload

import (
	"fmt"
	"testing"
)

// TestUsesOf: of an expression it is known which parameters it reads, or that it may read any.
func TestUsesOf(t *testing.T) {
	for text, want := range map[string]string{
		"plain $${parameters.size}":                            "[] false ",
		"${parameters.size}":                                   "[size] false size",
		"${ parameters.size }":                                 "[size] false size",
		"${parameters.size}G":                                  "[size] false ",
		"${parameters.size}${parameters.unit}":                 "[size unit] false ",
		"${parameters.size * 2}":                               "[size] false ",
		"${parameters.net.cidr}":                               "[net] false ",
		"${has(parameters.size) ? parameters.size : 1}":        "[size size] false ",
		"${has(parameters.size)}":                              "[size] false ",
		"${parameters}":                                        "[] true ",
		"${parameters['size']}":                                "[] true ",
		"${parameters.size == 1 ? parameters : {}}":            "[size] true ",
		"${instance.id}":                                       "[] false ",
		"${[1, 2].exists(x, x == parameters.size)}":            "[size] false ",
		"${parameters.?size.orValue(1)}":                       "[] true ",
		"${parameters.list.map(parameters, parameters.inner)}": "[list inner] false ",
	} {
		uses, err := UsesOf(text)
		if got := fmt.Sprint(uses.Names, " ", uses.All, " ", uses.Value); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"${", "${parameters.}"} {
		if _, err := UsesOf(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}
