package shape

import (
	"slices"
	"strings"
)

// countries has one word for each country of ISO 3166-1: the alpha-2, the alpha-3
// and the numeric code.
const countries = `
	ADAND020 AEARE784 AFAFG004 AGATG028 AIAIA660 ALALB008 AMARM051 AOAGO024
	AQATA010 ARARG032 ASASM016 ATAUT040 AUAUS036 AWABW533 AXALA248 AZAZE031
	BABIH070 BBBRB052 BDBGD050 BEBEL056 BFBFA854 BGBGR100 BHBHR048 BIBDI108
	BJBEN204 BLBLM652 BMBMU060 BNBRN096 BOBOL068 BQBES535 BRBRA076 BSBHS044
	BTBTN064 BVBVT074 BWBWA072 BYBLR112 BZBLZ084 CACAN124 CCCCK166 CDCOD180
	CFCAF140 CGCOG178 CHCHE756 CICIV384 CKCOK184 CLCHL152 CMCMR120 CNCHN156
	COCOL170 CRCRI188 CUCUB192 CVCPV132 CWCUW531 CXCXR162 CYCYP196 CZCZE203
	DEDEU276 DJDJI262 DKDNK208 DMDMA212 DODOM214 DZDZA012 ECECU218 EEEST233
	EGEGY818 EHESH732 ERERI232 ESESP724 ETETH231 FIFIN246 FJFJI242 FKFLK238
	FMFSM583 FOFRO234 FRFRA250 GAGAB266 GBGBR826 GDGRD308 GEGEO268 GFGUF254
	GGGGY831 GHGHA288 GIGIB292 GLGRL304 GMGMB270 GNGIN324 GPGLP312 GQGNQ226
	GRGRC300 GSSGS239 GTGTM320 GUGUM316 GWGNB624 GYGUY328 HKHKG344 HMHMD334
	HNHND340 HRHRV191 HTHTI332 HUHUN348 IDIDN360 IEIRL372 ILISR376 IMIMN833
	ININD356 IOIOT086 IQIRQ368 IRIRN364 ISISL352 ITITA380 JEJEY832 JMJAM388
	JOJOR400 JPJPN392 KEKEN404 KGKGZ417 KHKHM116 KIKIR296 KMCOM174 KNKNA659
	KPPRK408 KRKOR410 KWKWT414 KYCYM136 KZKAZ398 LALAO418 LBLBN422 LCLCA662
	LILIE438 LKLKA144 LRLBR430 LSLSO426 LTLTU440 LULUX442 LVLVA428 LYLBY434
	MAMAR504 MCMCO492 MDMDA498 MEMNE499 MFMAF663 MGMDG450 MHMHL584 MKMKD807
	MLMLI466 MMMMR104 MNMNG496 MOMAC446 MPMNP580 MQMTQ474 MRMRT478 MSMSR500
	MTMLT470 MUMUS480 MVMDV462 MWMWI454 MXMEX484 MYMYS458 MZMOZ508 NANAM516
	NCNCL540 NENER562 NFNFK574 NGNGA566 NINIC558 NLNLD528 NONOR578 NPNPL524
	NRNRU520 NUNIU570 NZNZL554 OMOMN512 PAPAN591 PEPER604 PFPYF258 PGPNG598
	PHPHL608 PKPAK586 PLPOL616 PMSPM666 PNPCN612 PRPRI630 PSPSE275 PTPRT620
	PWPLW585 PYPRY600 QAQAT634 REREU638 ROROU642 RSSRB688 RURUS643 RWRWA646
	SASAU682 SBSLB090 SCSYC690 SDSDN729 SESWE752 SGSGP702 SHSHN654 SISVN705
	SJSJM744 SKSVK703 SLSLE694 SMSMR674 SNSEN686 SOSOM706 SRSUR740 SSSSD728
	STSTP678 SVSLV222 SXSXM534 SYSYR760 SZSWZ748 TCTCA796 TDTCD148 TFATF260
	TGTGO768 THTHA764 TJTJK762 TKTKL772 TLTLS626 TMTKM795 TNTUN788 TOTON776
	TRTUR792 TTTTO780 TVTUV798 TWTWN158 TZTZA834 UAUKR804 UGUGA800 UMUMI581
	USUSA840 UYURY858 UZUZB860 VAVAT336 VCVCT670 VEVEN862 VGVGB092 VIVIR850
	VNVNM704 VUVUT548 WFWLF876 WSWSM882 YEYEM887 YTMYT175 ZAZAF710 ZMZMB894
	ZWZWE716
`

// The member states of the European Union, and those of the European Economic Area that are not
// in the Union. Territories with a code of their own (such as RE or GL) are in neither list:
// the author of a rule decides whether it applies there.
var (
	membersEU   = strings.Fields("AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK")
	membersEFTA = strings.Fields("IS LI NO")
)

// countryCodes maps every form of an ISO 3166-1 code to the alpha-2 code. Numbers are included
// with and without leading zeros.
var countryCodes = func() map[string]string {
	codes := make(map[string]string, 4*249)
	for word := range strings.FieldsSeq(countries) {
		alpha2, alpha3, numeric := word[:2], word[2:5], word[5:]
		codes[alpha2], codes[alpha3], codes[numeric] = alpha2, alpha2, alpha2
		codes[strings.TrimLeft(numeric, "0")] = alpha2
	}
	return codes
}()

const codeCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-"

// Country returns the alpha-2 code of the country of code, which is any form of ISO 3166-1 (DE,
// DEU, 276; 8, 08 or 008 for Albania) or a subdivision of ISO 3166-2 (DE-HE). Case does not
// matter. The subdivision is not checked to exist.
func Country(code string) (alpha2 string, ok bool) {
	if strings.Trim(code, codeCharacters) != "" {
		return "", false // before ToUpper, which makes ASCII of some other letters
	}
	code = strings.ToUpper(code)
	country, subdivision, divided := strings.Cut(code, "-")
	if !divided {
		if isDigits(code) && len(code) <= 3 {
			code = strings.TrimLeft(code, "0")
		}
		alpha2, ok = countryCodes[code]
		return alpha2, ok
	}
	if len(country) != 2 || !isSubdivision(subdivision) {
		return "", false
	}
	alpha2, ok = countryCodes[country]
	return alpha2, ok
}

// InEU reports whether a country, by its alpha-2 code, is a member of the European Union.
func InEU(alpha2 string) bool { return slices.Contains(membersEU, alpha2) }

// InEEA reports whether a country, by its alpha-2 code, is in the European Economic Area: the
// European Union, Iceland, Liechtenstein and Norway.
func InEEA(alpha2 string) bool {
	return InEU(alpha2) || slices.Contains(membersEFTA, alpha2)
}

// isAlpha2 reports whether value is an alpha-2 code as ISO 3166-1 writes it.
func isAlpha2(value string) bool {
	return len(value) == 2 && !isDigits(value) && countryCodes[value] == value
}

// isCountry reports whether value is a code of ISO 3166-1 as the standard writes it.
func isCountry(value string) bool {
	_, ok := countryCodes[value]
	return ok
}

// isSubdivisionCode reports whether value has the form of an ISO 3166-2 code, for a country
// that exists.
func isSubdivisionCode(value string) bool {
	country, subdivision, ok := strings.Cut(value, "-")
	return ok && isAlpha2(country) && isSubdivision(subdivision)
}

func isSubdivision(s string) bool {
	return 1 <= len(s) && len(s) <= 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") == ""
}

func isDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
