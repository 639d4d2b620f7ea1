package shape_test

import (
	"fmt"

	"github.com/sluice-dev/sluice/selfdescription/shape"
)

func ExampleCheck() {
	for _, violation := range shape.Check(map[string]any{
		"id":                 "https://provider.example/lp",
		"type":               "LegalPerson",
		"registrationNumber": map[string]any{"id": "https://provider.example/lei"},
		"legalAddress":       map[string]any{"type": "Address", "countryCode": "Germany"},
		"labelLevel":         "L3",
	}) {
		fmt.Println(violation)
	}
	// Output:
	// /legalAddress/countryCode: in: "Germany"
	// /headquartersAddress: minCount
	// /labelLevel: closed: "L3"
}

func ExampleCountry() {
	for _, code := range []string{"DEU", "276", "DE-HE", "GB"} {
		country, _ := shape.Country(code)
		fmt.Println(country, shape.InEU(country))
	}
	// Output:
	// DE true
	// DE true
	// DE true
	// GB false
}
